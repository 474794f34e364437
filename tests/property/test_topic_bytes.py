"""Bytes by topic of a connection: however it is cut, those of the decoded messages. Damaged ones
pass as they came.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.busiest_topics import OTHER
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Failed
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from tests.property.test_connection_state import CUTS, ENDPOINTS, chunks
from tests.rig.wire_frames import request, response, to_client, to_upstream

RULES = rules([])
NAMED = {"a": b"a" * 16, "topic-of-a-long-name" * 12: b"\x80" * 16}
UNNAMED = {"nobody": b"n" * 16, "": b"\0" * 16, "x" * 300: b"x" * 16}
TAGS = st.dictionaries(st.integers(20, 300), st.binary(max_size=3), max_size=2)
RECORDS = st.none() | st.integers(0, 3).map(bytes) | st.sampled_from([200, 70_000]).map(bytes)


@st.composite
def _topics(
    draw: st.DrawFn, name: str, partitions: str, *, flexible: bool, aborted: bool
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for topic, topic_id in draw(
        st.lists(st.sampled_from([*NAMED.items(), *UNNAMED.items()]), max_size=3)
    ):
        parts = []
        for records in draw(st.lists(RECORDS, max_size=3)):
            part: dict[str, Any] = {"Records": records}
            if aborted:
                part["AbortedTransactions"] = draw(st.sampled_from([None, [], [{}], [{}] * 3]))
            if flexible:
                part["_tags"] = draw(TAGS)
            parts.append(part)
        found.append({name: topic, "TopicId": topic_id, partitions: parts})
        if flexible:
            found[-1]["_tags"] = draw(TAGS)
    return found


def _bytes_by_topic(topics: list[dict[str, Any]], name: str, partitions: str) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for topic in topics:
        shown = topic[name] if topic[name] in NAMED else OTHER
        for part in topic[partitions]:
            sizes[shown] += len(part["Records"] or b"")
    return +sizes


def _counts() -> ApiCounts:
    counts = ApiCounts()
    for name, topic_id in NAMED.items():
        counts.topics.name(name, topic_id)
    return counts


@st.composite
def _produced(draw: st.DrawFn) -> tuple[bytes, Counter[str]]:
    """A Produce request, and the bytes in it."""
    version = draw(st.integers(3, 13))
    topics = draw(_topics("Name", "PartitionData", flexible=version >= 9, aborted=False))
    message = {
        "TransactionalId": draw(st.none() | st.text(max_size=3)),
        "Acks": draw(st.sampled_from([0, 1, -1])),
        "TopicData": topics,
    }
    return request(ApiKey.PRODUCE, version, message), _bytes_by_topic(
        topics, "Name", "PartitionData"
    )


@st.composite
def _fetched(draw: st.DrawFn) -> tuple[int, bytes, Counter[str]]:
    """A version, a Fetch response, and the bytes in it."""
    version = draw(st.integers(4, 18))
    topics = draw(_topics("Topic", "Partitions", flexible=version >= 12, aborted=True))
    message: dict[str, Any] = {"Responses": topics}
    if version >= 16 and draw(st.booleans()):
        message["NodeEndpoints"] = ENDPOINTS
    return (
        version,
        response(ApiKey.FETCH, version, message),
        _bytes_by_topic(topics, "Topic", "Partitions"),
    )


@given(st.lists(_produced(), min_size=1, max_size=4), CUTS)
def test_produced_bytes_are_those_of_the_decoded_requests(
    asked: list[tuple[bytes, Counter[str]]], cuts: list[int]
) -> None:
    counts = _counts()
    state = ConnectionState(RULES, counts)
    stream = b"".join(frame for frame, _ in asked)
    effects = [effect for piece in chunks(stream, cuts) for effect in state.from_client(piece)]
    assert to_upstream(effects) == stream
    produced, fetched = counts.topics.take()
    assert dict(produced) == sum((sizes for _, sizes in asked), Counter())
    assert not fetched


@given(st.lists(_fetched(), min_size=1, max_size=4), CUTS)
def test_fetched_bytes_are_those_of_the_decoded_responses(
    answers: list[tuple[int, bytes, Counter[str]]], cuts: list[int]
) -> None:
    counts = _counts()
    state = ConnectionState(RULES, counts)
    for version, _, _ in answers:
        state.from_client(request(ApiKey.FETCH, version))
    stream = b"".join(frame for _, frame, _ in answers)
    for piece in chunks(stream, cuts):
        state.from_upstream(piece)
    assert state.answered_all
    assert not state.mid_request
    produced, fetched = counts.topics.take()
    assert dict(fetched) == sum((sizes for *_, sizes in answers), Counter())
    assert not produced


@given(_produced(), st.data(), CUTS)
def test_a_damaged_request_passes_as_it_came(
    asked: tuple[bytes, Counter[str]], data: st.DataObject, cuts: list[int]
) -> None:
    """Upstream refuses it. No more bytes count than have passed."""
    damaged = bytearray(asked[0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, min(len(damaged), 1_000) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    stream = bytes(damaged)
    counts = _counts()
    state = ConnectionState(RULES, counts)
    effects = [effect for piece in chunks(stream, cuts) for effect in state.from_client(piece)]
    if not any(isinstance(effect, Failed) for effect in effects):  # of its header
        assert to_upstream(effects) == stream
    produced, _ = counts.topics.take()
    assert all(name == OTHER or name in NAMED for name, _ in produced)
    assert sum(size for _, size in produced) <= len(stream)


@given(_fetched(), st.data(), CUTS)
def test_a_damaged_response_without_endpoints_passes_as_it_came(
    answer: tuple[int, bytes, Counter[str]], data: st.DataObject, cuts: list[int]
) -> None:
    version, frame, _ = answer
    version = min(version, 15)  # its frame may be of a later one: it is damaged anyway
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(8, min(len(damaged), 1_000) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    counts = _counts()
    state = ConnectionState(RULES, counts)
    state.from_client(request(ApiKey.FETCH, version))
    effects = [
        effect for piece in chunks(bytes(damaged), cuts) for effect in state.from_upstream(piece)
    ]
    assert to_client(effects) == bytes(damaged)
    assert state.answered_all
    assert not state.mid_request
    _, fetched = counts.topics.take()
    assert sum(size for _, size in fetched) <= len(damaged)
