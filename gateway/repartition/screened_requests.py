"""Requests that name new partitions which their client does not see yet, or not to their end:
Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, OffsetCommit, OffsetFetch. And
those that tell about groups, until upstream lets their connection read them.

A row about a hidden partition is answered UNKNOWN_TOPIC_OR_PARTITION, as by a broker that has no
such partition; but of OffsetFetch, a group without a position there has that of the first record. A
Fetch behind the end that a consumer may see finds nothing there, and waits as at the end of a log.
The rest of the request goes upstream on the client's own connection, whose answer these rows are
put into. So a Fetch is of no session meanwhile (KIP-227): a client that has one is told that it is
gone, and asks in full.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.core.limits import FETCH_BYTES_MAX
from gateway.core.repartition.consumers import records_before
from gateway.core.repartition.named_partitions import (
    NAMING_PARTITIONS,
    Named,
    answered_with,
    named_in,
    positions_in,
    refusal,
    right_for,
    taken_out,
)
from gateway.core.repartition.screening import HIDDEN, Screening
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_long_response
from gateway.core.wire.decode import PASSING_ROW_ELEMENTS
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.schema import Message
from gateway.listen.answering import Request
from gateway.listen.authoriser import Authoriser
from gateway.listen.limits import AUTHORISATIONS_MAX
from gateway.repartition.limits import EMPTY_FETCH_MS_MAX, EMPTY_FETCH_MS_MIN
from gateway.upstream.cluster import LATEST

_NO_SESSION: Final = -1  # a Fetch outside of any; an open one of its id is closed
_NO_LEADER: Final[Message] = {"LeaderId": -1, "LeaderEpoch": -1}
_MAX_TIMESTAMP: Final = -3  # asks ListOffsets for the record with the latest one

_Ends = dict[tuple[str, int], int]  # by topic and partition


@dataclass(frozen=True, slots=True)
class ScreenedRequests:
    screening: Screening
    authoriser: Authoriser

    async def answer(self, request: Request) -> bytes | LongBytes:
        header = request.header
        key, version = header.api_key, header.api_version
        body = decode_request(key, version, request.frame, header.body_at, PASSING_ROW_ELEMENTS)
        if key == ApiKey.FETCH and body["SessionEpoch"] > 0:
            gone = {"ErrorCode": int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), "Responses": []}
            return encode_long_response(key, version, gone)
        await self._prove(request, body)
        if key not in NAMING_PARTITIONS:
            told = await request.connection.ask_upstream(key, version, body)
            if key == ApiKey.OFFSET_FETCH:
                self._begin_at_first(told)
            return encode_long_response(key, version, told)
        ends, denied = await self._ends(request, body)
        rows = self._taken_out(key, body, ends, denied)
        without_answer = key == ApiKey.PRODUCE and body["Acks"] == 0
        if without_answer:
            body["Acks"] = 1  # its failures are to be known
        answer = await self._ask(request, body, rows)
        if without_answer:
            request.connection.abort()  # as a broker does: the producer asks for Metadata then
            return b""
        self._shorten(key, body, answer, ends)
        return encode_long_response(key, version, answered_with(key, answer, rows))

    async def _prove(self, request: Request, body: Message) -> None:
        """Asks upstream for the rights without which it is not believed, and notes the rest."""
        connection, key = request.connection, request.header.api_key
        client, may_read = (connection.facts.host, connection.facts.client_id), connection.may_read
        unproven = self.screening.unproven(client, may_read, key, body)
        if len(may_read) + len(unproven) > AUTHORISATIONS_MAX:
            may_read.clear()
        for group in [name for kind, name in unproven if kind == "group"]:
            if await self.authoriser.may_read_group(connection, group):
                may_read.add(("group", group))
        topics = [name for kind, name in unproven if kind == "topic"]
        rights = await self.authoriser.topic_rights(connection, topics)
        may_read.update(("topic", name) for name, right in rights.items() if right)
        self.screening.note(client, may_read, key, body)

    async def _ends(self, request: Request, body: Message) -> tuple[_Ends, set[str]]:
        """By partition, what of it the client does not see; and the topics whose use upstream
        forbids it.
        """
        key, facts = request.header.api_key, request.connection.facts
        client = (facts.host, facts.client_id)
        ends: _Ends = {}
        for named in named_in(key, body):
            end = self.screening.end_for(client, key, named)
            if end is not None:
                ends[self.screening.topic_of(named), named.partition] = end
        topics = {topic for topic, _ in ends}
        return ends, await self.authoriser.denied_topics(request.connection, topics, right_for(key))

    def _taken_out(
        self, key: int, body: Message, ends: _Ends, denied: set[str]
    ) -> list[tuple[Named, Message]]:
        """The rows of the answer to what does not go upstream."""

        def stops(named: Named) -> bool:
            end = ends.get((self.screening.topic_of(named), named.partition))
            if end is None or end == HIDDEN:
                return end is not None
            return key == ApiKey.FETCH and named.row["FetchOffset"] >= end

        rows = []
        for named in taken_out(key, body, stops):
            topic = self.screening.topic_of(named)
            if topic in denied:
                row = refusal(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif ends[topic, named.partition] == HIDDEN:
                row = refusal(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                end = named.row["FetchOffset"]
                row = refusal(key, 0) | {"HighWatermark": end, "LastStableOffset": end}
            rows.append((named, row))
        return rows

    async def _ask(
        self, request: Request, body: Message, rows: list[tuple[Named, Message]]
    ) -> Message:
        key, version = request.header.api_key, request.header.api_version
        refused = any(row["ErrorCode"] for _, row in rows)
        left = any(True for _ in named_in(key, body))
        if key == ApiKey.FETCH:
            if refused:
                body["MaxWaitMs"] = 0  # a broker does not wait with an error
            elif not left:
                wait_ms = min(max(body["MaxWaitMs"], EMPTY_FETCH_MS_MIN), EMPTY_FETCH_MS_MAX)
                await asyncio.sleep(wait_ms / 1000)
            body["SessionEpoch"] = _NO_SESSION
            body["MaxBytes"] = min(body["MaxBytes"], FETCH_BYTES_MAX)
        if not left:
            return answered_with(key, None, [])
        return await request.connection.ask_upstream(key, version, body)

    def _begin_at_first(self, answer: Message) -> None:
        """Nobody has anything of a hidden partition behind him."""
        for named in positions_in(answer):
            place = self.screening.shown.get(self.screening.topic_of(named))
            unknown = named.row["ErrorCode"] == 0 and named.row["CommittedOffset"] < 0
            if unknown and place is not None and named.partition >= place.partitions:
                named.row.update(CommittedOffset=0, Metadata="")

    def _shorten(self, key: int, body: Message, answer: Message, ends: _Ends) -> None:
        """Changes the rows of partitions that the client does not see to their end. No address of
        upstream's may be left, and so no new leader.
        """
        answer.pop("NodeEndpoints", None)
        if key == ApiKey.LIST_OFFSETS:
            asked = {(named.name, named.partition): named.row for named in named_in(key, body)}
            for topic in answer["Topics"]:
                for row in topic["Partitions"]:
                    place = (topic["Name"], row["PartitionIndex"])
                    _shorten_offset(asked[place]["Timestamp"], row, ends.get(place))
        elif key in (ApiKey.FETCH, ApiKey.PRODUCE):
            rows = "Partitions" if key == ApiKey.FETCH else "PartitionResponses"
            for topic in answer["Responses"]:
                for row in topic[rows]:
                    row["CurrentLeader"] = _NO_LEADER
                    if key == ApiKey.FETCH:
                        named = Named(topic["Topic"], topic["TopicId"], row["PartitionIndex"], row)
                        topic_name = self.screening.topic_of(named)
                        _shorten_records(row, ends.get((topic_name, named.partition)))


def _shorten_offset(timestamp: int, row: Message, end: int | None) -> None:
    if end is None or row["Offset"] < end:
        return
    if timestamp == LATEST:
        row["Offset"] = end
    elif timestamp >= 0 or timestamp == _MAX_TIMESTAMP:
        row |= {"Offset": -1, "Timestamp": -1, "LeaderEpoch": -1}


def _shorten_records(row: Message, end: int | None) -> None:
    if end is None or row["ErrorCode"] != 0:
        return
    row["Records"] = records_before(row["Records"], end)
    for field in ("HighWatermark", "LastStableOffset"):
        row[field] = min(row[field], end)
