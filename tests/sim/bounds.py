"""How large a core may become, and that it counts right."""

from __future__ import annotations

from dispatcher.core.dispatcher import Core, Dispatcher
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import PoisonPolicy, Policy, Reason
from dispatcher.core.records.offset_bits import offsets_in
from dispatcher.core.stored.snapshot import StoredWindow
from tests.sim.checkers import CheckFailure
from tests.sim.faults import Options


def recount(
    core: Core,
    stored: StoredWindow | None,
    options: Options,
    policy: Policy,
    span_max_ever: int,
) -> None:
    """All that costs as much as the window is large: the core's own recount, and its memory."""
    core.check_invariants()
    # A window from a commit may have more aside than it would put there.
    aside = core._state.window.aside.count if isinstance(core, Dispatcher) else 0
    known = span_max_ever + max(aside, policy.held_max)
    if stored is not None:  # it may have more aside: the core's last steps are not there yet
        theirs = sum(len(offsets_in(number, data)) for number, data in stored.aside.items())
        if len(stored.retries) > span_max_ever + max(aside, theirs, policy.held_max):
            raise CheckFailure("BoundedMemory", f"{len(stored.retries)} retries in the store")
    if not isinstance(core, Dispatcher):
        return  # recounts its own bounds in `check_invariants`
    state = core._state
    size_max = aside + max(core.read_position - core.front, 0)
    bounds = {
        "keys": (len(state.by_key), size_max + IDLE_KEYS_MAX),
        "retries": (len(state.retries.by_offset), known),
        "timers": (len(state.retries.timers), 3 * known),
        "leases": (len(state.book.leases), known),
        "sessions": (len(state.book.sessions), known),
        "ring": (state.window.capacity, max(64, 2 * span_max_ever)),
    }
    for name, (size, bound) in bounds.items():
        if size > bound:
            raise CheckFailure("BoundedMemory", f"{name}: {size} > {bound}")
    stats = core.stats()
    # A window from a commit may have records in the span that were aside before.
    restored = state.window.known_end > state.window.front
    live = stats.unsettled - aside
    if policy.window_records is not None and live > policy.window_records and not restored:
        raise CheckFailure("BoundedMemory", f"{live} records")
    if options.faults.retune > 0:
        return  # they may have been parked under another policy
    for parked in stats.parked:
        said = policy.rejected if parked.reason is Reason.REJECTED else policy.exhausted
        if said is not PoisonPolicy.BLOCK:
            raise CheckFailure("Policy", f"{parked} is parked under {said}")
