"""The fail-over demo's verdict on order sees each planted fault."""

from __future__ import annotations

import pytest

from demo.failover_groups import Group, Processed

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
