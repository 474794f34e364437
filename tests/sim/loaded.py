"""A window that was loaded, or whose log has lost its tail: what the outside knows of it from then
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import Claimed
from tests.sim.checkers import CheckFailure
from tests.sim.filed import settled_of
from tests.sim.lost import back_again, forget, found_out, lost_from

if TYPE_CHECKING:
    from tests.sim.window import Window


def judge_loaded(
    window: Window, claimed: Claimed, snapshot: Snapshot, committed: Snapshot, kept_to: int
) -> None:
    was_set_back, window.set_back = window.set_back, False
    checkers = window.checkers
    if window.committed.taken_up(snapshot, checkers):
        return
    if claimed.snapshot is None:
        checkers.regressed(committed)
        window.committed.taken_again(committed, checkers)
    elif not window.world.policy.reliable:
        return
    elif not was_set_back:
        # Holes of the log are in the commit alone.
        come = settled_of(snapshot) - settled_of(claimed.snapshot)
        if come & window.log.records.keys():
            raise CheckFailure("StoreIsAhead", f"{claimed} of {committed}")
    elif window.committed.origin > claimed.origin:
        checkers.regressed(committed)
        window.committed.taken_again(committed, checkers)
    else:
        same = window.committed.origin == claimed.origin
        checkers.set_back(snapshot, committed if same else Snapshot(cursor=0), kept_to)
        if snapshot is not claimed.snapshot:
            window.world.note("Merged")


def judge_lost(window: Window, snapshot: Snapshot) -> None:
    if lost_from(window.log, snapshot) is None:
        window.last_read = None
        if (first := found_out(window.log, window.checkers)) is not None:
            window.checkers.holds.nobody_works_on(first, window.world.now_ms)
            forget(window.checkers, first, snapshot, window.committed.taken)
    back_again(window.checkers, snapshot)


def judge_elected(window: Window, end: int, known: int) -> None:
    """Another leader has the log up to `end`, or has it again behind that; the window knows it up
    to `known`.
    """
    log = window.log
    log.lost(end)
    if (whole := log.whole_to()) is not None and whole >= known:
        found_out(log, window.checkers)
        if (snapshot := _persisted(window)) is not None:
            back_again(window.checkers, snapshot)


def judge_untold(window: Window) -> None:
    """The window reads on: without epochs nobody can tell other records from the lost ones."""
    assert window.core is not None
    if window.core.epochs or window.log.lost_from is None:
        return
    if (snapshot := _persisted(window)) is not None:
        judge_lost(window, snapshot)


def _persisted(window: Window) -> Snapshot | None:
    """What the window has decided since may not get to the store."""
    if not window.world.policy.reliable:
        return None if window.core is None else window.core.snapshot()
    stored = window.world.gateway.store.windows.get(window.key)
    return None if stored is None else stored.snapshot()
