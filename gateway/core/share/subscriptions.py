"""The topics that members of a share group subscribe to, each member a tuple of ascending names.

Most members of a group subscribe to the same topics: these are one tuple, which is looked at once.
Whatever happens to a member, its group's topics are gone through, so there is a bound for what
members subscribe to beside each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gateway.core.limits import GROUP_TOPIC_NAMES_MAX
from gateway.core.share.errors import GroupFull

Subscription = tuple[str, ...]


def distinct(subscriptions: Iterable[Subscription]) -> Collection[Subscription]:
    """Each tuple once. Two that are equal may both be there."""
    return {id(one): one for one in subscriptions}.values()


def names_in(subscriptions: Iterable[Subscription]) -> int:
    return sum(map(len, distinct(subscriptions)))


def joined(
    topics: Subscription,
    others: Iterable[Subscription],
    names_max: int = GROUP_TOPIC_NAMES_MAX,
    whose: str = "The members of the group",
) -> Subscription:
    """The topics of a member beside those of the others: the very tuple of another one, if that has
    the same. Raises GroupFull.
    """
    known = distinct(others)
    for one in known:
        if one == topics:
            return one
    if sum(map(len, known)) + len(topics) > names_max:
        raise GroupFull(
            f"{whose} subscribe to too many topics beside each other: at most {names_max} names."
        )
    return topics


def touched(
    before: Mapping[str, tuple[Subscription, str]], after: Mapping[str, tuple[Subscription, str]]
) -> set[str]:
    """The topics of members that came, left or changed: topics and client id by member."""
    found: set[str] = set()
    for member_id in before.keys() | after.keys():
        was, now = before.get(member_id), after.get(member_id)
        if was != now:
            found.update(() if was is None else was[0], () if now is None else now[0])
    return found
