"""Partitions that clients do not see yet."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.repartition.hiding import ShownTopic, hide, shown_of
from gateway.core.repartition.record import Move, Pace, Repartition
from gateway.core.wire.schema import Message

ID, OTHER_ID, NO_ID = b"i" * 16, b"o" * 16, bytes(16)
SHOWN = {"orders": ShownTopic(ID, 2)}


def seen(name: str | None, **topic: bytes) -> list[int]:
    partitions = [{"PartitionIndex": number} for number in (3, 0, 2, 1)]
    row: Message = {"Name": name, "ErrorCode": 0, "Partitions": partitions, **topic}
    response = {"Topics": [row]}
    hide(response, SHOWN)
    return [partition["PartitionIndex"] for partition in row["Partitions"]]


def test_partitions_from_that_number_on_are_left_out() -> None:
    assert seen("orders", TopicId=ID) == [0, 1]
    assert seen("orders") == [0, 1], "an answer without topic ids"
    assert seen("orders", TopicId=NO_ID) == [0, 1]


def test_other_topics_are_shown_whole() -> None:
    for row in (seen("payments", TopicId=ID), seen("orders", TopicId=OTHER_ID), seen(None)):
        assert row == [3, 0, 2, 1]


def test_a_topic_that_is_hidden_whole_does_not_exist() -> None:
    row: Message = {"Name": "new", "TopicId": ID, "Partitions": [{"PartitionIndex": 0}]}
    row["ErrorCode"] = 0
    other: Message = {"Name": "other", "ErrorCode": 0, "Partitions": []}
    all_topics: Message = {"Topics": [dict(row), other]}
    hide(all_topics, {"new": ShownTopic(NO_ID, 0)}, leave_out=True)
    assert all_topics == {"Topics": [other]}, "an error in it ends tools that describe all topics"
    hide({"Topics": [row]}, {"new": ShownTopic(NO_ID, 0)})
    assert row == {"Name": "new", "TopicId": NO_ID, "Partitions": [], "ErrorCode": 3}


def test_who_may_not_see_a_hidden_topic_is_told_that_and_no_more() -> None:
    """As of any other name: else the answer would say that something is there."""
    row: Message = {"Name": "new", "TopicId": NO_ID, "Partitions": [], "ErrorCode": 29}
    hide({"Topics": [row]}, {"new": ShownTopic(ID, 0)})
    assert row["ErrorCode"] == 29


PACE = Pace(adoption_ms=0, settle_ms=0, late_ms=0)
GROWS = Repartition(
    topic="orders", topic_id=ID.hex(), before=2, after=4, partitioner=None, pace=PACE
)


def test_what_is_shown_of_a_topic_that_grows() -> None:
    assert shown_of([GROWS]) == ({"orders": ShownTopic(ID, 2)}, ["orders"])
    shown = GROWS.moved(Move.CREATE).moved(Move.SHOW)
    assert shown_of([shown]) == ({"orders": ShownTopic(ID, 4)}, [])
    assert shown_of([GROWS.moved(Move.ABORT)]) == shown_of([GROWS]), "they stay hidden"
    finished = shown.moved(Move.OPEN).moved(Move.RAISE).moved(Move.FINISH)
    assert shown_of([finished]) == ({}, [])


def test_a_new_topic_is_hidden_until_it_is_shown() -> None:
    old = {"orders": ShownTopic(ID, 2)}
    moves = replace(GROWS, after=5, into="new")
    assert shown_of([moves]) == (old | {"new": ShownTopic(NO_ID, 0)}, ["new"])
    created = moves.moved(Move.CREATE, into_id=OTHER_ID.hex())
    assert shown_of([created]) == (old | {"new": ShownTopic(OTHER_ID, 0)}, ["new"])
    shown = created.moved(Move.SHOW)
    assert shown_of([shown]) == (old | {"new": ShownTopic(OTHER_ID, 3)}, [])
    assert shown_of([moves.moved(Move.ABORT)]) == ({}, []), "Kafka deletes topics"
