"""Requests that several rooms ask alike: a coordinator that settles, names by id, ends of logs."""

from __future__ import annotations

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream.limits import SETTLING_PAUSE_MS
from gateway.upstream.requests import ask_coordinator, names_by_id, offsets_at_leader
from tests.rig.virtual_time import now_ms, run

LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


class Group:
    """Its coordinator is broker 1, then 2, then 3, each time it is looked for."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.found = 1
        self.asked: list[int] = []

    async def coordinator(self, group: str) -> int:
        assert group == "g"
        return self.found

    def forget_coordinator(self, group: str) -> None:
        assert group == "g"
        self.found += 1

    async def ask(self, broker: int) -> int:
        self.asked.append(broker)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "attempts_max", "answer", "asked"),
    [
        ((0,), None, 0, [1]),
        ((MOVED, LOADING, 0), None, 0, [1, 2, 3]),
        ((MOVED, 0), 2, 0, [1, 2]),
        ((MOVED, LOADING, 0), 2, LOADING, [1, 2]),
        ((MOVED, 0), 1, MOVED, [1]),
        ((ErrorCode.GROUP_AUTHORIZATION_FAILED, 0), None, 30, [1]),
    ],
)
def test_a_coordinator_that_is_none_is_looked_for_again(
    answers: tuple[int, ...], attempts_max: int | None, answer: int, asked: list[int]
) -> None:
    async def work() -> None:
        group, began = Group(*answers), now_ms()
        found = await ask_coordinator(group, "g", group.ask, int, attempts_max=attempts_max)
        assert (found, group.asked) == (answer, asked)
        stands = answer in (MOVED, LOADING)
        assert group.found == len(asked) + stands, "the next one looks for it anew"
        assert now_ms() - began == (len(asked) - 1) * SETTLING_PAUSE_MS

    run(work())


class Cluster:
    def __init__(self, answer: Message) -> None:
        self.answer = answer
        self.asked: list[tuple[int, Message, int | None]] = []

    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,  # noqa: ARG002
    ) -> Message:
        self.asked.append((api_key, body, broker_id))
        return self.answer


def test_names_by_id() -> None:
    rows = [
        {"TopicId": b"a", "Name": "orders", "ErrorCode": 0},
        {"TopicId": b"b", "Name": None, "ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_ID)},
        {"TopicId": b"c", "Name": None, "ErrorCode": int(ErrorCode.LEADER_NOT_AVAILABLE)},
    ]
    cluster = Cluster({"Topics": rows})
    assert run(names_by_id(cluster, [b"a", b"b", b"c"])) == {b"a": "orders", b"b": None}
    ((key, body, _),) = cluster.asked
    assert key == ApiKey.METADATA
    assert [(row["TopicId"], row["Name"]) for row in body["Topics"]] == [
        (b"a", None),
        (b"b", None),
        (b"c", None),
    ]
    assert run(names_by_id(cluster, [])) == {}
    assert len(cluster.asked) == 1, "nothing to ask"


def test_offsets_of_one_leader() -> None:
    def row(partition: int, code: int, offset: int) -> Message:
        return {"PartitionIndex": partition, "ErrorCode": code, "Offset": offset}

    rows = [
        {"Name": "a", "Partitions": [row(0, 0, 7), row(1, 6, -1)]},
        {"Name": "b", "Partitions": [row(0, 0, 9)]},
    ]
    cluster = Cluster({"Topics": rows})
    places = [("a", 0), ("b", 0), ("a", 1)]
    assert run(offsets_at_leader(cluster, 5, places, -1, 1)) == {
        ("a", 0): (0, 7),
        ("a", 1): (6, -1),
        ("b", 0): (0, 9),
    }
    ((key, body, broker),) = cluster.asked
    assert (key, broker, body["IsolationLevel"]) == (ApiKey.LIST_OFFSETS, 5, 1)
    assert [(topic["Name"], len(topic["Partitions"])) for topic in body["Topics"]] == [
        ("a", 2),
        ("b", 1),
    ]
