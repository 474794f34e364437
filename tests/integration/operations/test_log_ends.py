"""Open transactions of a real Kafka, as the lag of groups sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from gateway.embedded.kafka import KafkaCluster
from gateway.operations.limits import TRANSACTION_TOLD_MS
from gateway.operations.log_ends import LogEnds, OpenTransaction
from gateway.upstream.settings import UpstreamSettings
from tests.rig.kafka import produce
from tests.rig.upstream_side import DEADLINE_S, committed, run, running, until

pytestmark = pytest.mark.integration

MADE_MS = 1_234_567_890


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_transaction_that_is_not_ended_holds_up_a_log(
    kafka: KafkaCluster, topic: Callable[..., str], *, ends_well: bool
) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, [(b"k", b"before")])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(name, key=b"t", value=b"t", partition=0, timestamp=MADE_MS)
    assert producer.flush(DEADLINE_S) == 0
    produce(kafka.bootstrap_servers, name, [(b"k", b"behind")] * 3)
    at_ms = 1_000

    async def work() -> None:
        nonlocal at_ms
        settings = UpstreamSettings(kafka.bootstrap_servers, request_timeout_ms=5_000)
        async with running(settings) as side:
            source = committed(await side.partition(name))
            ends = LogEnds(side.upstream, lambda: at_ms)
            await ends.look([source], transactions=True)
            assert (ends.of(source), ends.held(source)) == (1, None)
            at_ms += TRANSACTION_TOLD_MS
            await ends.look([source])
            assert (ends.of(source), ends.held(source)) == (5, OpenTransaction(1, 1_000, 5))
            first = await side.reader.records.times.look(source._replace(isolation=0), 1)
            assert (first.offset, first.timestamp_ms) == (1, MADE_MS)
            end = producer.commit_transaction if ends_well else producer.abort_transaction
            await asyncio.to_thread(end, DEADLINE_S)

            async def over() -> bool:
                await ends.look([source], transactions=True)
                return ends.held(source) is None and ends.of(source) == 6

            await until(over)

    run(work())
