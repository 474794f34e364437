"""Bytes by topic: of the topics that upstream has named, and of all others."""

from __future__ import annotations

from gateway.core.cluster.busiest_topics import OTHER
from gateway.core.forwarding.partition_walk import PRODUCE_REQUESTS, PartitionWalk
from gateway.core.forwarding.topic_bytes import TopicBytes
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_request

NO_ID = bytes(16)


def test_a_topic_is_one_by_its_id_and_by_its_name() -> None:
    topics = TopicBytes()
    topics.name("orders", b"1" * 16)
    assert topics.by_id[b"1" * 16] is topics.by_name[b"orders"]
    topics.by_name[b"orders"].produced += 5
    topics.by_id[b"1" * 16].fetched += 7
    topics.unnamed.produced += 1
    assert topics.take() == ([(OTHER, 1), ("orders", 5)], [("orders", 7)])
    assert topics.take() == ([], [])


def test_a_topic_made_again_keeps_its_name() -> None:
    topics = TopicBytes()
    for number in (1, 2, 2):
        topics.name("orders", bytes([number]) * 16)
        topics.by_id[bytes([number]) * 16].produced += number
    assert topics.take() == ([("orders", 5)], [])


def test_an_upstream_without_ids_names_topics() -> None:
    topics = TopicBytes()
    for _ in range(2):
        topics.name("orders", NO_ID)
    assert list(topics.by_name) == [b"orders"]
    assert not topics.by_id


def test_of_too_many_topics_those_at_rest_are_forgotten() -> None:
    topics = TopicBytes(named_max=3)
    for number in range(3):
        topics.name(f"t{number}", bytes([number + 1]) * 16)
    topics.by_name[b"t0"].produced += 10
    topics.by_name[b"t2"].fetched += 20
    topics.name("t1", bytes([2]) * 16)  # is known
    assert len(topics.by_name) == 3
    topics.name("t3", bytes([4]) * 16)
    assert list(topics.by_name) == [b"t0", b"t2", b"t3"]
    assert list(topics.by_id) == [bytes([kept]) * 16 for kept in (1, 3, 4)]
    topics.by_name[b"t3"].produced += 30
    topics.name("t4", bytes([5]) * 16)
    assert list(topics.by_name) == [b"t0", b"t2", b"t3"], "all have bytes: there is no room"
    assert topics.take() == ([("t0", 10), ("t3", 30)], [("t2", 20)])
    topics.name("t4", bytes([5]) * 16)
    assert list(topics.by_name) == [b"t4"]


def test_watched_topics_are_kept_at_rest() -> None:
    topics = TopicBytes(named_max=2)
    topics.watch({"orders": b"1" * 16})
    for number in range(5):
        topics.name(f"t{number}", bytes([number + 1]) * 16)
    assert topics.by_name[b"orders"].watched


def test_a_topic_that_is_made_again_and_again_is_bounded() -> None:
    topics = TopicBytes(named_max=3)
    for number in range(1, 100):
        topics.name("orders", bytes([number]) * 16)
        topics.by_name[b"orders"].produced += 1
        assert list(topics.by_id) == [bytes([number]) * 16]
        assert topics.by_id[bytes([number]) * 16] is topics.by_name[b"orders"]


def test_a_connection_knows_that_it_has_produced_to_a_watched_topic() -> None:
    topics = TopicBytes()
    topics.watch({"orders": b"1" * 16})
    walk = PartitionWalk(topics)
    for topic_id in (b"2" * 16, b"1" * 16):
        assert walk.watched == set()
        rows = [{"Index": 0, "Records": b"r"}]
        body = {"Acks": 1, "TopicData": [{"TopicId": topic_id, "PartitionData": rows}]}
        frame = encode_request(ApiKey.PRODUCE, 13, body)
        walk.begin(PRODUCE_REQUESTS[13], 7)  # no transactional id, acks, timeout
        walk.feed(frame, 0, len(frame))
    assert walk.watched == {"orders"}
    topics.watch({})
    assert not topics.by_name[b"orders"].watched
