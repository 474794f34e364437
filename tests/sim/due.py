"""Records that are certainly free for a member, judged from outside: they must not be kept from
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core.model import JoinPolicy
from dispatcher.core.routing.glob import accepts
from tests.sim.checkers import NOW, UNKNOWN, Checkers

TOLD_MS = 1_000  # by then a tick has told that a lock is over


def withheld(checkers: Checkers, member: str, now_ms: int) -> int | None:
    """A record that is free, due and the member's, and that it could acquire; None without."""
    log = checkers.log
    # With bounded loads the ring alone does not name the owner of a key.
    bounded = checkers.policy.bounded_load is not None
    for offset in _free(checkers, member, now_ms):
        key = log.records[offset]
        if not (bounded and key is not None) and _owner(checkers, key, offset) == member:
            return offset
    return None


def kept(checkers: Checkers, idle: Sequence[str], *, handled_ms: int, now_ms: int) -> int | None:
    """A record that a hung member keeps from `idle` ones; they may hold more. `handled_ms`: of the
    window's last event. Says nothing while a member that joined with a limit may own records which
    that limit keeps from it: behind a parked one for as long as that stands.
    """
    if checkers.policy.join_policy is JoinPolicy.LAST_SENT and checkers.joined:
        return None
    free: dict[int, None] = {}
    for member in checkers.members:
        if member.member_id in idle:
            for offset in _free(checkers, member.member_id, handled_ms):
                if accepts(member.filters, checkers.log.records[offset]):
                    free[offset] = None
    lock_ms = checkers.policy.lock_duration_ms
    return checkers.silence.kept_too_long(free, checkers.members, set(idle), lock_ms, now_ms)


def _free(checkers: Checkers, member: str, now_ms: int) -> list[int]:
    """Records that are free and due, and that the member could acquire if they are its own.

    Says nothing of keys that the outside cannot be sure of: of records that were compacted,
    parked, or may be leased still, or of members that joined with a limit; nor of any key while a
    record is in flight that the log has lost: since a restart it may be of that key. O(keys): for
    samples.
    """
    policy, log = checkers.policy, checkers.log
    if policy.prefetch_per_key > 1 or not policy.reliable:
        return []
    if policy.join_policy is JoinPolicy.LAST_SENT and member in checkers.joined:
        return []
    stray = now_ms < checkers.holds.lost_until_ms + TOLD_MS
    stray = stray or any(hold.offset in log.gone for hold in checkers.holds)
    keys = () if stray else log.of_key
    first = [checkers.first_of(key) for key in keys if not checkers.holds.of_key(key)]
    free = [offset for offset in first if offset is not None]
    free += [
        offset
        for offset in log.keyless
        if offset not in checkers.settled and offset not in checkers.holds
    ]
    return [offset for offset in free if _is_free(checkers, offset, now_ms)]


def _is_free(checkers: Checkers, offset: int, now_ms: int) -> bool:
    if offset < checkers.cursor or offset >= checkers.read_to:
        return False
    due_ms = checkers.failed.get(offset, NOW)
    return offset in checkers.log.records and due_ms is not UNKNOWN and due_ms <= now_ms


def _owner(checkers: Checkers, key: bytes | None, offset: int) -> str | None:
    """One that is not silent, if it accepts the key."""
    for router in (checkers.silence.takers, checkers.router):
        index = router.owner_of(key, offset)
        if index >= 0:
            return router.members[index].member_id
    return None
