"""Requests that name new partitions: what goes upstream of them, and what the client gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, cast

import pytest

from gateway.core.cluster.acl import WRITE
from gateway.core.repartition.consumers import ANYBODY, ConsumerEnds
from gateway.core.repartition.hiding import ShownTopic
from gateway.core.repartition.screening import Screening
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import RequestHeader
from gateway.core.wire.long_bytes import whole
from gateway.core.wire.schema import Message
from gateway.listen.answering import Client, Request
from gateway.listen.authoriser import Authoriser
from gateway.repartition.limits import EMPTY_FETCH_MS_MAX
from gateway.repartition.screened_requests import ScreenedRequests
from tests.rig.share_client import ScriptedConnection
from tests.rig.virtual_time import now_ms, run

TOPIC, TOPIC_ID = "orders", b"o" * 16
_HEAD = Struct(">qi")


def batch(base_offset: int) -> bytes:
    return _HEAD.pack(base_offset, 4) + b"data"


@dataclass
class Upstream(ScriptedConnection):
    """Answers what the test says, and remembers what it was asked."""

    answers: dict[int, Message] = field(default_factory=dict)
    bodies: list[Message] = field(default_factory=list)
    aborted: bool = False

    async def ask_upstream(self, api_key: int, api_version: int, body: Message) -> Message:
        if api_key not in self.answers:
            return await super().ask_upstream(api_key, api_version, body)
        encode_request(api_key, api_version, body)
        self.bodies.append(body)
        answer = encode_response(api_key, api_version, self.answers[api_key])
        return decode_response(api_key, api_version, answer)

    def abort(self) -> None:
        self.aborted = True

    def _described(self, name: str) -> Message:
        described = super()._described(name)
        if not described["ErrorCode"]:
            described["TopicAuthorizedOperations"] |= 1 << WRITE
        return described


def screening(ends: ConsumerEnds | None = None) -> Screening:
    """Partitions from 2 on are hidden, or shown to their ends."""
    found = Screening()
    shown = {TOPIC: ShownTopic(TOPIC_ID, 2 if ends is None else 4)}
    found.look_for(
        shown, [TOPIC] if ends is None else [], {} if ends is None else {TOPIC: ends}, listens=True
    )
    return found


def holding(end: int = 0) -> Screening:
    ends = ConsumerEnds(frozenset({"g"}), before=2)
    ends.put("g", 2, end)
    ends.put(ANYBODY, 2, end)
    return screening(ends)


def asked(
    looked: Screening, upstream: Upstream, key: ApiKey, version: int, body: dict[str, Any]
) -> Message:
    async def ask() -> bytes:
        encoded = encode_request(key, version, body)
        request = Request(RequestHeader(key, version, 1, "app", 0), encoded, cast(Client, upstream))
        return whole(await ScreenedRequests(looked, Authoriser(now_ms)).answer(request))

    answer = run(ask())
    return decode_response(key, version, answer) if answer else {}


def fetch(*places: tuple[int, int], **fields: int) -> dict[str, Any]:
    rows = [{"Partition": partition, "FetchOffset": offset} for partition, offset in places]
    return {"Topics": [{"TopicId": TOPIC_ID, "Partitions": rows}], **fields}


def fetched(**rows: dict[str, Any]) -> Message:
    found = [{"PartitionIndex": int(name[1:]), **row} for name, row in rows.items()]
    nodes = [{"NodeId": 1, "Host": "upstream", "Port": 9}]
    return {
        "Responses": [{"TopicId": TOPIC_ID, "Partitions": found}],
        "NodeEndpoints": nodes,
    }


def rows_of(answer: Message) -> dict[int, Message]:
    return {
        row["PartitionIndex"]: row for topic in answer["Responses"] for row in topic["Partitions"]
    }


def test_a_hidden_partition_is_refused_and_the_rest_is_asked_for_at_once() -> None:
    leader = {"LeaderId": 7, "LeaderEpoch": 3}
    upstream = Upstream(
        1, answers={ApiKey.FETCH: fetched(p0={"Records": batch(5), "CurrentLeader": leader})}
    )
    answer = asked(
        screening(),
        upstream,
        ApiKey.FETCH,
        17,
        fetch((0, 5), (2, 0), MaxWaitMs=500, SessionEpoch=0),
    )
    (sent,) = upstream.bodies
    assert (sent["MaxWaitMs"], sent["SessionEpoch"]) == (0, -1)
    assert [row["Partition"] for row in sent["Topics"][0]["Partitions"]] == [0]
    rows = rows_of(answer)
    assert rows[2]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows[0]["Records"] == batch(5)
    assert (answer["NodeEndpoints"], rows[0]["CurrentLeader"]["LeaderId"]) == ([], -1)


def test_who_may_not_use_the_topic_is_told_so() -> None:
    upstream = Upstream(1, denied={TOPIC})
    answer = asked(screening(), upstream, ApiKey.FETCH, 17, fetch((2, 0)))
    assert rows_of(answer)[2]["ErrorCode"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert upstream.bodies == []


def test_an_open_session_is_gone() -> None:
    upstream = Upstream(1)
    answer = asked(
        holding(), upstream, ApiKey.FETCH, 17, fetch((2, 0), SessionId=9, SessionEpoch=3)
    )
    assert answer["ErrorCode"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert upstream.bodies == []


@pytest.mark.parametrize(("wait_ms", "waited_ms"), [(500, 500), (99_000, EMPTY_FETCH_MS_MAX)])
def test_a_fetch_behind_the_end_waits_as_at_the_end_of_a_log(wait_ms: int, waited_ms: int) -> None:
    upstream = Upstream(1)

    async def timed() -> tuple[Message, int]:
        began_ms = now_ms()
        encoded = encode_request(ApiKey.FETCH, 17, fetch((2, 6), MaxWaitMs=wait_ms))
        request = Request(
            RequestHeader(ApiKey.FETCH, 17, 1, "app", 0), encoded, cast(Client, upstream)
        )
        screened = ScreenedRequests(holding(6), Authoriser(now_ms))
        answer = decode_response(ApiKey.FETCH, 17, whole(await screened.answer(request)))
        return answer, now_ms() - began_ms

    answer, took_ms = run(timed())
    row = rows_of(answer)[2]
    assert (row["ErrorCode"], row["HighWatermark"], row["Records"]) == (0, 6, b"")
    assert took_ms == waited_ms
    assert upstream.bodies == []


def test_a_fetch_before_the_end_gets_the_batches_before_it() -> None:
    row = {"Records": batch(5) + batch(6), "HighWatermark": 9, "LastStableOffset": 8}
    upstream = Upstream(1, answers={ApiKey.FETCH: fetched(p0=row, p2=row)})
    rows = rows_of(asked(holding(6), upstream, ApiKey.FETCH, 17, fetch((0, 5), (2, 5))))
    assert (rows[2]["Records"], rows[2]["HighWatermark"], rows[2]["LastStableOffset"]) == (
        batch(5),
        6,
        6,
    )
    assert rows[0]["Records"] == batch(5) + batch(6), "an old partition"


@pytest.mark.parametrize(
    ("timestamp", "found", "shown"),
    [(-1, 9, 6), (-1, 4, 4), (-2, 7, 7), (-3, 8, -1), (1_000, 6, -1), (1_000, 5, 5)],
)
def test_offsets_end_where_the_client_sees_the_end(timestamp: int, found: int, shown: int) -> None:
    row = {"PartitionIndex": 2, "Offset": found}
    answers = {ApiKey.LIST_OFFSETS: {"Topics": [{"Name": TOPIC, "Partitions": [row]}]}}
    body = {
        "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 2, "Timestamp": timestamp}]}]
    }
    answer = asked(
        holding(6), Upstream(1, answers=cast(Any, answers)), ApiKey.LIST_OFFSETS, 7, body
    )
    assert answer["Topics"][0]["Partitions"][0]["Offset"] == shown


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_to_a_hidden_partition(acks: int) -> None:
    theirs = {"Responses": [{"TopicId": TOPIC_ID, "PartitionResponses": [{"Index": 0}]}]}
    upstream = Upstream(1, answers={ApiKey.PRODUCE: theirs})
    rows = [{"Index": index, "Records": batch(0)} for index in (0, 3)]
    body = {"Acks": acks, "TopicData": [{"TopicId": TOPIC_ID, "PartitionData": rows}]}
    answer = asked(screening(), upstream, ApiKey.PRODUCE, 13, body)
    (sent,) = upstream.bodies
    assert [row["Index"] for row in sent["TopicData"][0]["PartitionData"]] == [0]
    assert sent["Acks"] == (acks or 1)
    if acks == 0:
        assert upstream.aborted, "as a broker does"
        assert answer == {}
        return
    (topic,) = answer["Responses"]
    codes = {row["Index"]: row["ErrorCode"] for row in topic["PartitionResponses"]}
    assert codes == {0: 0, 3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_group_begins_at_the_first_record_of_a_hidden_partition() -> None:
    """Kafka gives it to a member of a KIP-848 group before Keyway has committed offset 0 there: by
    `latest` it would lose what comes before it sees the partition.
    """
    said = [(0, -1, 0), (1, 7, 0), (2, -1, 0), (3, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (4, 3, 0)]
    rows = [
        {"PartitionIndex": at, "CommittedOffset": offset, "Metadata": "", "ErrorCode": int(code)}
        for at, offset, code in said
    ]
    topics = [{"Name": TOPIC, "Partitions": rows}, {"Name": "other", "Partitions": [rows[0]]}]
    groups = [{"GroupId": "g", "Topics": topics}]
    upstream = Upstream(1, answers={ApiKey.OFFSET_FETCH: {"Groups": groups}})
    body = {"Groups": [{"GroupId": "g", "Topics": [{"Name": TOPIC, "PartitionIndexes": [2]}]}]}
    (group,) = asked(screening(), upstream, ApiKey.OFFSET_FETCH, 9, body)["Groups"]
    first, other = [[row["CommittedOffset"] for row in t["Partitions"]] for t in group["Topics"]]
    assert (first, other) == ([-1, 7, 0, -1, 3], [-1])


def test_a_group_is_believed_once_upstream_lets_its_client_read_it() -> None:
    """A stranger told that a group had passed, and its members read new records too early."""
    body = {"GroupId": "g", "GenerationId": 3, "MemberId": "m", "GroupInstanceId": None}
    answers: dict[int, Message] = {ApiKey.SYNC_GROUP: {"Assignment": b"a"}}
    for denied, known in ((True, set()), (False, {"g"})):
        looked, upstream = holding(), Upstream(1, group_denied=denied, answers=answers)
        answer = asked(looked, upstream, ApiKey.SYNC_GROUP, 5, body)
        assert answer["Assignment"] == b"a", "upstream's own answer"
        (sent,) = upstream.bodies
        assert sent["MemberId"] == "m"
        facts = upstream.facts
        assert looked.groups.of((facts.host, facts.client_id)) == known
        assert upstream.may_read == {("group", group) for group in known}


def test_where_a_client_fetches_counts_once_upstream_lets_it_read_the_topic() -> None:
    for denied, places in (({TOPIC}, {}), (set[str](), {("g", 0): 7})):
        upstream = Upstream(1, denied=denied, answers={ApiKey.FETCH: fetched(p0={})})
        looked = holding()
        looked.groups.named((upstream.facts.host, upstream.facts.client_id), ["g"])
        asked(looked, upstream, ApiKey.FETCH, 17, fetch((0, 7)))
        assert looked.ends[TOPIC].fetched == places
