"""Subscriptions of the members of a group: shared where they are the same, and bounded."""

from __future__ import annotations

import pytest

from gateway.core.limits import GROUP_TOPIC_NAMES_MAX
from gateway.core.share.errors import GroupFull
from gateway.core.share.subscriptions import distinct, joined, names_in, touched


def own(member: int, count: int) -> tuple[str, ...]:
    return tuple(f"topic-{member}-{at:04}" for at in range(count))


def test_members_with_the_same_topics_share_one_tuple() -> None:
    first, again, other = own(1, 3), own(1, 3), own(2, 3)
    assert joined(again, [other, first, first]) is first
    assert joined(other, [first]) is other
    assert list(distinct([first, other, first])) == [first, other]
    assert names_in([first, other, first]) == 6


def test_what_members_subscribe_to_beside_each_other_has_a_bound() -> None:
    most = own(1, GROUP_TOPIC_NAMES_MAX - 3)
    assert joined(own(2, 3), [most]) == own(2, 3)
    with pytest.raises(GroupFull, match="at most 20000 names"):
        joined(own(2, 4), [most])
    many = [most] * 1_000
    assert joined(own(1, GROUP_TOPIC_NAMES_MAX - 3), many) is most, "who has the same may come"


def test_topics_of_who_came_left_or_changed() -> None:
    before = {"stays": (("a",), "c"), "left": (("b",), "c"), "moved": (("d", "e"), "c")}
    after = {"stays": (("a",), "c"), "came": (("f",), "c"), "moved": (("e", "g"), "c")}
    assert touched(before, after) == {"b", "d", "e", "f", "g"}
    assert touched(before, {**before, "stays": (("a",), "other")}) == {"a"}, "or its filters"
