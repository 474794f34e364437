"""Offset 0 for the new partitions of a group that has members.

Kafka takes a commit of somebody who is no member only while the group is empty, but as part of a
transaction (TxnOffsetCommit without a member id, KIP-447) it does at any time. Members read a
committed offset when a partition is assigned to them, and these are not yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.operations.errors import StateUnavailable
from gateway.repartition.limits import START_OFFSETS_S_MAX
from gateway.upstream.commits import Commit
from gateway.upstream.settings import UpstreamSettings

TRANSACTIONAL_ID = "keyway-repartition"  # its principal needs WRITE on it


@dataclass(frozen=True, slots=True)
class StartOffsets:
    settings: UpstreamSettings

    async def commit(self, group: str, commits: Sequence[Commit]) -> None:
        """Raises StateUnavailable."""
        # aiokafka is a seventh of a node's start, and most nodes never come here.
        from aiokafka import AIOKafkaProducer, TopicPartition
        from aiokafka.errors import KafkaError
        from aiokafka.structs import OffsetAndMetadata

        from gateway.reading.letter_producer import producer_options

        offsets = {
            TopicPartition(commit.tp.topic, commit.tp.partition): OffsetAndMetadata(
                commit.offset, commit.metadata
            )
            for commit in commits
        }
        options = producer_options(self.settings) | {"client_id": self.settings.client_id}
        producer = AIOKafkaProducer(
            **options, transactional_id=f"{TRANSACTIONAL_ID}-{commits[0].tp.topic}"
        )
        try:
            async with asyncio.timeout(START_OFFSETS_S_MAX):
                await producer.start()
                async with producer.transaction():
                    await producer.send_offsets_to_transaction(offsets, group)
        except (KafkaError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise StateUnavailable(
                f"commit of offset 0 for group {group!r}, which has members: {why}"
            ) from error
        finally:
            try:
                async with asyncio.timeout(START_OFFSETS_S_MAX):
                    await producer.stop()
            except (KafkaError, OSError, TimeoutError):
                pass
