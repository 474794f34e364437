"""Partitions that clients do not see yet."""

from __future__ import annotations

from gateway.core.repartition.hiding import ShownTopic, hide
from gateway.core.wire.schema import Message

ID, OTHER_ID, NO_ID = b"i" * 16, b"o" * 16, bytes(16)
SHOWN = {"orders": ShownTopic(ID, 2)}


def seen(name: str | None, **topic: bytes) -> list[int]:
    partitions = [{"PartitionIndex": number} for number in (3, 0, 2, 1)]
    row: Message = {"Name": name, "Partitions": partitions, **topic}
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
