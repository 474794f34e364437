"""The fail-over demo's verdict on order sees each planted fault."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest

from demo.failover_groups import Group, Processed
from demo.failover_member import Allowed, Member
from gateway.embedded.process import SetupError

Seen = tuple[str, int]  # visit, number of the flight


def group(*seen: Seen, key: bytes = b"N1") -> Group:
    made = Group("trackers", shared=True)
    made.processed += [Processed(visit, 0, at, key, at) for visit, at in seen]
    return made


@pytest.mark.parametrize(
    ("seen", "wrong", "repeated"),
    [
        ([("east", 1), ("east", 2), ("west", 3)], 0, 0),
        ([("east", 1), ("east", 2), ("west", 2), ("west", 3)], 0, 1),  # not told before the kill
        ([("east", 2), ("east", 1)], 1, 0),
        ([("east", 2), ("west", 1)], 1, 0),  # of another cluster, and too late all the same
        ([("east", 1), ("east", 3), ("west", 1), ("west", 2)], 1, 1),  # 2 after 3
        ([("east", 1), ("east", 2), ("east", 1)], 1, 1),  # nobody has moved
        ([("west", 2), ("west", 3), ("east again", 2), ("east again", 3)], 0, 2),
    ],
)
def test_order_over_all_visits(seen: list[Seen], wrong: int, repeated: int) -> None:
    found = group(*seen)
    assert (found.out_of_order, found.repeated) == (wrong, repeated)


def test_keys_owe_each_other_no_order() -> None:
    found = group(("east", 5))
    found.processed += group(("east", 3), key=b"N2").processed
    assert found.out_of_order == 0


def test_a_member_that_could_not_commit_is_not_taken_for_one_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = group()
    monkeypatch.setattr("demo.failover_groups.run", fail_to_commit)
    made.start("west", "127.0.0.1:1", "flights")
    with pytest.raises(SetupError, match="trackers: no commit"):
        made.stop()


def fail_to_commit(_member: Member, _allowed: Allowed, told: Connection) -> None:
    told.recv()
    told.send("no commit")
