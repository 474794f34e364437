"""How large a core may become, and that it counts right."""

from __future__ import annotations

from dispatcher.core.dispatcher import Core, Dispatcher
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import PoisonPolicy, Policy, Reason
from dispatcher.core.snapshot import WindowState
from tests.sim.checkers import CheckFailure
from tests.sim.faults import Options


def recount(core: Core, stored: WindowState | None, options: Options, policy: Policy) -> None:
    """All that costs as much as the window is large: the core's own recount, and its memory."""
    core.check_invariants()
    if stored is not None and len(stored.retries) > policy.span_max:
        raise CheckFailure("BoundedMemory", f"{len(stored.retries)} retries in the store")
    if not isinstance(core, Dispatcher):
        return  # recounts its own bounds in `check_invariants`
    state = core._state
    span = core.read_position - core.cursor
    bounds = {
        "keys": (len(state.by_key), span + IDLE_KEYS_MAX),
        "retries": (len(state.retries.by_offset), policy.span_max),
        "timers": (len(state.retries.timers), 3 * policy.span_max),
        "leases": (len(state.book.leases), policy.span_max),
        "sessions": (len(state.book.sessions), policy.span_max),
        "ring": (state.window.capacity, max(64, 2 * policy.span_max)),
    }
    for name, (size, bound) in bounds.items():
        if size > bound:
            raise CheckFailure("BoundedMemory", f"{name}: {size} > {bound}")
    stats = core.stats()
    if policy.window_records is not None and stats.unsettled > policy.window_records:
        raise CheckFailure("BoundedMemory", f"{stats.unsettled} records")
    if options.faults.retune > 0:
        return  # they may have been parked under another policy
    for parked in stats.parked:
        said = policy.rejected if parked.reason is Reason.REJECTED else policy.exhausted
        if said is not PoisonPolicy.BLOCK:
            raise CheckFailure("Policy", f"{parked} is parked under {said}")
