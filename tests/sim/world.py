"""One seeded run: virtual time, a log, a gateway, consumers, faults; then calm, and it must finish.

The same seed gives the same trace, event for event. Nothing here sleeps or asks a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random

from dispatcher.core.model import MemberId, OperatorVerb, Snapshot
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.consumers import Consumer
from tests.sim.faults import Faults, Options, draw
from tests.sim.gateway import KEY, TICK_MS, Gateway
from tests.sim.unreliable import UnreliableChecker
from tests.sim.upstream import Log

CALM_MS_MAX = 600_000  # virtual; a lock of 30 s and back-offs of 5 s fit many times
CALM_STEPS_MAX = 40_000


class World:
    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.options: Options = draw(self.rng, seed)
        self.faults = self.options.faults
        self.now_ms = 1_000_000
        self.start_ms = self.now_ms
        self.steps = 0
        self.calm = False
        self.verbose = verbose
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._digest = sha256()
        self.log = Log()
        self.checkers = Checkers(self.options.policy, self.log)
        self.unreliable = UnreliableChecker(self.options.policy, self.log)
        self.gateway = Gateway(self)
        self.consumers = [self._consumer(index) for index in range(self.options.consumers)]
        self.produced = 0
        self.seen: dict[str, int] = {}  # kinds of events, changes and notices: what a run covers

    def _consumer(self, index: int) -> Consumer:
        filters: tuple[bytes, ...] = ()
        if self.rng.random() < self.options.filtered:
            filters = (b"key-%d*" % self.rng.randint(0, 9), b"hot")
        return Consumer(self, f"c{index + 1}", filters)

    # ----------------------------------------------------------------------------------------- time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._sequence, action))

    def every(self, period_ms: int, action: Callable[[], None]) -> None:
        def run() -> None:
            action()
            self.after(period_ms, run)

        self.after(period_ms, run)

    def _advance(self) -> None:
        self.now_ms, _, action = heapq.heappop(self._timers)
        self.steps += 1
        action()

    def trace(self, what: str, detail: object) -> None:
        line = f"{self.now_ms - self.start_ms:>7} {what:8} {detail}"
        self._digest.update(line.encode())
        if self.verbose:
            print(line)  # noqa: T201

    def saw(self, kind: str) -> None:
        self.seen[kind] = self.seen.get(kind, 0) + 1

    def digest(self) -> str:
        return self._digest.hexdigest()

    # -------------------------------------------------------------------------------------- the run

    def run(self) -> World:
        """Raises CheckFailure, or AssertionError of the core itself."""
        gateway = self.gateway
        claimed = gateway.store.claim_now(KEY, "node")
        gateway.store.create_now(KEY, claimed.fence, Snapshot(cursor=0))
        gateway.rebuild()
        for consumer in self.consumers:
            self.after(self.rng.randint(0, 2_000), consumer.join)
        self.every(TICK_MS, gateway.tick)
        self.every(self.options.commit_every_ms, gateway.commit_now)
        self.every(1_000, self._trouble)
        self.after(0, self._produce)
        while self.now_ms < self.start_ms + self.options.calm_after_ms:
            self._advance()
        self._calm_down()
        return self

    def _produce(self) -> None:
        options, rng = self.options, self.rng
        for _ in range(rng.randint(1, 10)):
            if self.produced >= options.records:
                break
            if rng.random() < options.holes:
                self.log.append_hole(rng.choice((1, 1, 2, 5, 300)))
            key: bytes | None = b"key-%d" % rng.randrange(options.keys)
            if rng.random() < options.hot:
                key = b"hot"
            if rng.random() < options.null_keys:
                key = None
            self.log.append(key)
            self.produced += 1
        self.gateway.log_grew()
        if self.produced < options.records:
            self.after(rng.randint(1, 200), self._produce)

    def _trouble(self) -> None:
        """Once a second."""
        faults, rng, gateway = self.faults, self.rng, self.gateway
        if rng.random() < faults.store_down and not gateway.store.down:
            gateway.store.down = True
            self.after(rng.randint(100, 3_000), self._store_up)
        if rng.random() < faults.store_flush:
            gateway.store.flush()
            self.trace("flush", "")
        if rng.random() < faults.truncate and self.log.end > self.log.start:
            self.log.truncate(rng.randint(self.log.start, self.log.end))
        if rng.random() < faults.compact and self.log.records:
            self.log.remove(rng.choice(sorted(self.log.records)))
        if rng.random() < faults.operator:
            gateway.operator(rng.choice(tuple(OperatorVerb)))
        for consumer in self.consumers:
            self._trouble_one(consumer)

    def _trouble_one(self, consumer: Consumer) -> None:
        faults, rng = self.faults, self.rng
        if not consumer.joined:
            return
        if rng.random() < faults.leave:
            consumer.leave()
        elif rng.random() < faults.die:
            consumer.die()
        elif rng.random() < faults.disconnect:
            consumer.disconnect()
        elif rng.random() < faults.close_session:
            consumer.close_session()

    def _store_up(self) -> None:
        self.gateway.store.down = False

    # ------------------------------------------------------------------------------ for the gateway

    def ready(self, members: Sequence[MemberId]) -> None:
        for consumer in self.consumers:
            if consumer.member_id in members:
                self.after(0, consumer.ready)

    def disconnect_all(self) -> None:
        for consumer in self.consumers:
            if consumer.session is not None:
                consumer.disconnected()

    # ------------------------------------------------------------------------------------- progress

    def _calm_down(self) -> None:
        """No more faults: everything produced must be settled, within a bound of steps."""
        self.calm = True
        self.faults = Faults()
        self.trace("calm", "")
        self._store_up()
        for consumer in self.consumers:
            if not consumer.joined:
                self.after(0, consumer.join)
        self.every(5_000, lambda: self.gateway.operator(OperatorVerb.SKIP))
        deadline_ms = self.now_ms + CALM_MS_MAX
        steps_max = self.steps + CALM_STEPS_MAX
        while not self._finished():
            if self.now_ms > deadline_ms or self.steps > steps_max:
                raise CheckFailure("Progress", self._why_stuck())
            self._advance()
        self._check_end()

    def _finished(self) -> bool:
        core = self.gateway.core
        return (
            self.produced == self.options.records
            and core is not None
            and core.cursor == self.log.end
            and not self.gateway.pending
        )

    def _why_stuck(self) -> str:
        core = self.gateway.core
        return f"{core} of {self.log.end}: {None if core is None else core.stats()}"

    def _check_end(self) -> None:
        if not self.options.policy.reliable:
            self.unreliable.at_end()
            return
        checkers = self.checkers
        lost = [offset for offset in self.log.records if offset not in checkers.causes]
        if lost:
            raise CheckFailure("NothingLost", f"{lost} have no end")
        dead = [o for o, cause in checkers.causes.items() if cause == "dead-lettered"]
        missing = set(dead) - set(self.gateway.dead_letters)
        if missing:
            raise CheckFailure("NothingLost", f"{sorted(missing)} never reached the DLQ")
        store = self.gateway.store.windows.get(KEY)
        if store is not None and (store.leases or store.retries):
            raise CheckFailure("BoundedMemory", f"left behind: {store.leases} {store.retries}")


def run(seed: int, *, verbose: bool = False) -> World:
    return World(seed, verbose=verbose).run()
