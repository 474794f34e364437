"""A calm in which not all is mended, in some runs and for a while: parked keys stay parked, a slow
member stays slow, there is a backlog, and retention deletes records. Other keys must go on, or the
window tells why they do not.

It draws from a source of its own, so that the histories before it stay as they are.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import JoinPolicy
from tests.sim.checkers import CheckFailure

if TYPE_CHECKING:
    from tests.sim.consumers import Consumer
    from tests.sim.window import Window
    from tests.sim.world import World

UNKIND = 0.5  # of the runs
# Locks, graces and awaited members of before are over by then.
UNKIND_MS = 100_000
# A record that was read so long before the end has had its time; later ones may be at work.
PATIENCE_MS = 20_000
TRUNCATED_MS = 20_000  # from its beginning; where logs begin is looked at once a minute
WORKS_MS_MAX = 20_000


class UnkindCalm:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(world.seed ^ 0x0CA1)
        self.comes = self._rng.random() < UNKIND
        self.slow: Consumer | None = None
        self._read_before: dict[Window, int] = {}  # PATIENCE_MS before the end

    def works_ms(self, consumer: Consumer) -> int | None:
        """How long a slow consumer works on each of its records; None: it is not slow."""
        if consumer is not self.slow:
            return None
        return min(self._world.policy.lock_duration_ms * 6 // 10, WORKS_MS_MAX)

    def begins(self) -> None:
        world, rng = self._world, self._rng
        world.after(UNKIND_MS - PATIENCE_MS, self._note_reads)
        if rng.random() < 0.7:
            self.slow = rng.choice(world.consumers)
            world.note("Slow")
        for window in world.gateway.windows:
            for key, count in ((b"hot", rng.choice((0, 20, 300))), (None, rng.choice((0, 0, 5)))):
                for _ in range(count):
                    window.log.append(key)
            for at in range(rng.choice((0, 20))):
                window.log.append(b"key-%d" % (at % 10))
            window.log_grew()
            if rng.random() < 0.4:
                world.after(TRUNCATED_MS, partial(self._truncate, window))

    def _truncate(self, window: Window) -> None:
        """Mostly what the window has read: it learns it from no read if it has no room."""
        log, core = window.log, window.core
        end = log.end if core is None or self._rng.random() < 0.3 else core.read_position
        if log.start < end <= log.end:
            log.truncate(self._rng.randint(log.start, end))

    def _note_reads(self) -> None:
        for window in self._world.gateway.windows:
            if window.core is not None:
                self._read_before[window] = window.core.read_position

    def ends(self) -> None:
        for window in self._world.gateway.windows:
            self._judge(window)
        self.slow = None

    def _judge(self, window: Window) -> None:
        """All keys went on, but for those that are parked, or the slow member's."""
        core, checkers, policy = window.core, window.checkers, self._world.policy
        if not isinstance(core, Dispatcher) or window.busy or window.log.lost_from is not None:
            return
        if core.cursor < window.log.start:
            raise CheckFailure("Retention", f"{core}, whose log begins at {window.log.start}")
        parked = {record.offset for record in core.stats().parked}
        limited = policy.join_policy is JoinPolicy.LAST_SENT
        if core.holder >= 0 or (limited and (parked or self.slow is not None)):
            return  # said so; or nothing behind them may go to members that joined late
        keys = {window.log.records.get(offset) for offset in parked} - {None}
        for offset in range(core.cursor, self._read_before.get(window, 0)):
            if offset in window.log.records and offset not in checkers.settled | parked:
                key = window.log.records[offset]
                if key not in keys and not self._may_be_slow(window, key, offset):
                    raise CheckFailure("Starved", f"{offset} of {key!r} in {core}: {core.stats()}")

    def _may_be_slow(self, window: Window, key: bytes | None, offset: int) -> bool:
        if self.slow is None:
            return False
        if self._world.policy.bounded_load is not None:
            return True  # the ring alone does not name the owner
        owner = window.checkers.router.owner_of(key, offset)
        return owner >= 0 and window.checkers.router.members[owner].member_id == self.slow.member_id
