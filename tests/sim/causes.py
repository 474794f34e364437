"""Why a record may be settled that nobody has accepted and no operator has skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.core.model import EvictPolicy, PoisonPolicy
from dispatcher.core.routing.glob import accepts

if TYPE_CHECKING:
    from tests.sim.checkers import Checkers


def accepted_by_nobody(checkers: Checkers, offset: int, *, unknown: bool = False) -> bool:
    """`unknown`: of a record that the log has lost, as its key went with it."""
    if offset not in checkers.log.records:
        return unknown
    key = checkers.log.records[offset]
    # Due retries come first in a step, and are still judged by the members of before.
    for members in (checkers.members, checkers.members_before):
        if members and not any(accepts(m.filters, key) for m in (*members, *checkers.awaited)):
            return True
    return False


def natural_cause(checkers: Checkers, offset: int) -> str:
    """Empty: there is none."""
    policy = checkers.policy
    if accepted_by_nobody(checkers, offset):
        return "skipped"
    spent = checkers.deliveries.get(offset, 0) >= policy.deliveries_max
    if policy.exhausted is PoisonPolicy.DROP and spent:
        return "dropped"
    if policy.on_evict is EvictPolicy.ACK and offset in checkers.deliveries:
        return "evicted"  # Perhaps without ever having arrived: at most once.
    return ""
