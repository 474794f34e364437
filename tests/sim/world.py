"""One seeded run: virtual time, logs, a gateway, consumers, faults; then calm, and it must finish.

The same seed gives the same trace, event for event. Nothing here sleeps or asks a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random

from dispatcher.core.model import Event, MemberId, OperatorVerb
from dispatcher.core.steps import Noticed, Step
from tests.sim.checkers import CheckFailure
from tests.sim.consumers import Consumer
from tests.sim.due import kept, withheld
from tests.sim.elsewhere import drawn
from tests.sim.faults import PARTITIONS_MAX, Faults, Options, draw, retuned
from tests.sim.gateway import TICK_MS, Gateway
from tests.sim.reshaping import Reshaping
from tests.sim.unkind import UNKIND_MS, UnkindCalm
from tests.sim.window import Window

CALM_MS_MAX = 600_000  # virtual; a lock of 30 s and back-offs of 5 s fit many times
CALM_STEPS_MAX = 60_000
LOG_STARTS_MS = 60_000
WRITES_FILE = 0.3  # of the seconds in which the store is not set back to its file


# Long: the clock, and all that a run draws from its seed.
class World:
    def __init__(self, seed: int, *, verbose: bool = False, traced: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.options: Options = draw(self.rng)
        self.policy = self.options.policy  # of the group, now
        self.faults = self.options.faults
        self.now_ms = 1_000_000
        self.start_ms = self.now_ms
        self.steps = 0
        self.events = 0  # handled by the core
        self.calm = False
        self.verbose = verbose
        self.traced = traced or verbose  # costs more than all else
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._digest = sha256()
        self.reshaping = Reshaping(seed, self.policy)
        self.unkind = UnkindCalm(self)
        self.gateway = Gateway(self)
        self.consumers = [self._consumer(index) for index in range(self.options.consumers)]
        self.produced = 0
        self.seen: dict[str, int] = {}  # kinds of events, changes and notices: a run's coverage

    def _consumer(self, index: int) -> Consumer:
        filtered = self.rng.random() < self.options.filtered
        return Consumer(self, f"c{index + 1}", self._filters() if filtered else ())

    def _filters(self) -> tuple[bytes, ...]:
        return (b"key-%d*" % self.rng.randint(0, 9), b"hot")

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
        if self.traced:
            line = f"{self.now_ms - self.start_ms:>7} {what:8} {detail}"
            self._digest.update(line.encode())
            if self.verbose:
                print(line)  # noqa: T201

    def saw(self, event: Event, step: Step) -> None:
        seen = self.seen
        name = type(event).__name__
        seen[name] = seen.get(name, 0) + 1
        for change in step.changes:
            name = type(change).__name__
            seen[name] = seen.get(name, 0) + 1
        for effect in step.effects:
            name = effect.notice.name if isinstance(effect, Noticed) else type(effect).__name__
            seen[name] = seen.get(name, 0) + 1

    def digest(self) -> str:
        assert self.traced, "only a traced run has one"
        return self._digest.hexdigest()

    @property
    def delivered(self) -> int:
        return sum(window.checkers.delivered_count for window in self.gateway.windows)

    # -------------------------------------------------------------------------------------- the run

    def run(self) -> World:
        """Raises CheckFailure, or AssertionError of the core itself."""
        gateway = self.gateway
        gateway.create_topic(self.options.partitions)
        for consumer in self.consumers:
            self.after(self.rng.randint(0, 2_000), consumer.join)
        self.every(TICK_MS, gateway.tick)
        self.every(self.options.commit_every_ms, gateway.commit_now)
        self.every(LOG_STARTS_MS, gateway.look_at_log_starts)
        self.every(1_000, self._trouble)
        self.every(777, self._check_parked)
        self.after(0, self._produce)
        while self.now_ms < self.start_ms + self.options.calm_after_ms:
            self._advance()
        self._calm_down()
        return self

    def _produce(self) -> None:
        options, rng = self.options, self.rng
        window = rng.choice(self.gateway.windows)
        for _ in range(rng.randint(1, 10)):
            if self.produced >= options.records:
                break
            if rng.random() < options.holes:
                window.log.append_hole(rng.choice((1, 1, 2, 5, 300)))
            key: bytes | None = b"key-%d" % rng.randrange(options.keys)
            if rng.random() < options.hot:
                key = b"hot"
            if rng.random() < options.null_keys:
                key = None
            window.log.append(key)
            self.produced += 1
        window.log_grew()
        if self.produced < options.records:
            self.after(rng.randint(1, 200), self._produce)

    def _trouble(self) -> None:
        """Once a second."""
        faults, rng, gateway = self.faults, self.rng, self.gateway
        if self.calm:
            return
        self._trouble_store()
        if not gateway.store.down:
            self._trouble_topic()
        if rng.random() < faults.crash:
            gateway.crash("between two persists")
        if rng.random() < faults.fail_over and not gateway.kafka_away:
            self._fail_over()
        if rng.random() < faults.operator:
            gateway.operator(rng.choice(tuple(OperatorVerb)))
        if rng.random() < faults.retune:
            self.policy = self.reshaping.retuned(retuned(self.policy, rng))
            gateway.retune()
            self.note("Retuned")
        for window in gateway.windows:
            self._trouble_log(window)
            if rng.random() < faults.hold:
                window.hold_as(drawn(window.core, window.log, rng))
        for consumer in self.consumers:
            self._trouble_one(consumer)

    def reshape(self) -> None:
        """The node starts with another configuration, perhaps."""
        reshaped = self.reshaping.restarted(self.policy)
        if reshaped != self.policy:
            self.policy = reshaped
            for window in self.gateway.windows:
                window.checkers.policy = reshaped
            self.note("Reshaped")

    def _fail_over(self) -> None:
        """Nothing is committed, and all members leave for another cluster."""
        self.gateway.kafka_away = True
        self.note("KafkaAway")
        for consumer in self.consumers:
            if consumer.joined:
                consumer.leave()
        self.after(self.rng.randint(100, 4_000), self._kafka_back)

    def _kafka_back(self) -> None:
        """With the group's position from the other cluster, unless members came back before."""
        gateway = self.gateway
        gateway.kafka_away = False
        if not gateway.members and not self.calm and self.policy.reliable:
            for window in gateway.windows:
                window.set_elsewhere()
            self.note("SetElsewhere")

    def _trouble_store(self) -> None:
        faults, rng, gateway = self.faults, self.rng, self.gateway
        if rng.random() < faults.store_down and not gateway.store.down:
            gateway.store.down = True
            self.after(rng.randint(100, 3_000), self._store_up)
        if rng.random() < faults.store_flush:
            gateway.store.flush()
            self.trace("flush", "")
        if rng.random() < faults.store_set_back:
            gateway.set_back()
        elif faults.store_set_back and rng.random() < WRITES_FILE:
            gateway.write_file()

    def _trouble_topic(self) -> None:
        faults, rng, gateway = self.faults, self.rng, self.gateway
        partitions = len(gateway.windows)
        if rng.random() < faults.recreate:
            gateway.create_topic(rng.randint(1, partitions))
            self.note("Recreated")
        elif partitions < PARTITIONS_MAX and rng.random() < faults.grow:
            gateway.add_partition()
            self.note("Grown")

    def _trouble_log(self, window: Window) -> None:
        faults, rng, log = self.faults, self.rng, window.log
        if rng.random() < faults.truncate and log.end > log.start:
            log.truncate(rng.randint(log.start, log.end))
        if rng.random() < faults.elect:
            end = max(log.start, log.end - rng.choice((0, 1, 3, 10, 50)))
            if log.former is not None and rng.random() < 0.5:
                window.elect_former()
            else:
                window.elect(end)
            self.note("Elected")
        if rng.random() < faults.compact and log.records:
            log.remove(rng.choice(sorted(log.records)))

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
        elif rng.random() < faults.hang:
            consumer.hang(rng.randint(500, 90_000))
            self.note("Hung")
        elif rng.random() < faults.refilter:
            consumer.refilter(self._filters() if rng.random() < 0.5 else ())
            self.note("Refiltered")

    def note(self, kind: str) -> None:
        self.trace(kind.lower(), "")
        self.seen[kind] = self.seen.get(kind, 0) + 1

    def _store_up(self) -> None:
        self.gateway.store.down = False

    # ------------------------------------------------------------------------------ for the gateway

    def ready(self, members: Sequence[MemberId]) -> None:
        for consumer in self.consumers:
            if consumer.member_id in members:
                consumer.wakes += 1
                self.after(0, consumer.ready)

    def disconnect_all(self) -> None:
        for consumer in self.consumers:
            if consumer.session is not None:
                consumer.disconnected()

    def waiting(self) -> frozenset[MemberId]:
        return frozenset(consumer.member_id for consumer in self.consumers if consumer.parked)

    # ------------------------------------------------------------------------------------- progress

    def _check_parked(self) -> None:
        """No member waits for a record it could have, as far as the windows have come."""
        waiting = [
            consumer.member_id
            for consumer in self.consumers
            if consumer.parked and not consumer.wakes
        ]
        for window in self.gateway.windows:
            window.standing.look(window, waiting, self.now_ms)
            if window.core is None or window.busy or window.hold is not None:
                continue
            if window.kept_to is not None:
                continue  # nothing of a tail that is lost goes out, also if it is back meanwhile
            idle = [name for name in waiting if window.checkers.may_hold_more(name)]
            for name in idle:
                offset = withheld(window.checkers, name, window.handled_ms)
                if offset is not None:
                    raise CheckFailure("LostWakeUp", f"{name} waits, {offset} is free")
            offset = kept(window.checkers, idle, handled_ms=window.handled_ms, now_ms=self.now_ms)
            if offset is not None:
                raise CheckFailure("HungMember", f"{offset} is free, {idle} wait for it")

    def _calm_down(self) -> None:
        """No more faults: everything produced must be settled, within a bound of steps."""
        self.calm = True
        self.faults = Faults()
        self.trace("calm", "")
        self._store_up()
        for window in self.gateway.windows:
            window.hold_as(None)
        for consumer in self.consumers:
            if not consumer.joined:
                self.after(0, consumer.join)
        if self.reshaping.on:
            self.gateway.crash("another configuration")
        if self.unkind.comes:
            self._unkindly()
        self.every(5_000, lambda: self.gateway.operator(OperatorVerb.SKIP))
        deadline_ms = self.now_ms + CALM_MS_MAX
        steps_max = self.steps + CALM_STEPS_MAX
        while not self._finished():
            if self.now_ms > deadline_ms or self.steps > steps_max:
                raise CheckFailure("Progress", self._why_stuck())
            if self.produced == self.options.records:
                self._tell_losses()
            self._advance()
        for window in self.gateway.windows:
            self._check_end(window)

    def _unkindly(self) -> None:
        self.note("UnkindCalm")
        self.unkind.begins()
        end_ms, steps_max = self.now_ms + UNKIND_MS, self.steps + CALM_STEPS_MAX
        while self.now_ms < end_ms:
            if self.steps > steps_max:
                raise CheckFailure("Progress", self._why_stuck())
            self._advance()
        self.unkind.ends()

    def _finished(self) -> bool:
        if self.produced != self.options.records:
            return False
        for window in self.gateway.windows:
            if window.core is None or window.busy or window.core.cursor != window.log.end:
                return False
            if window.log.lost_from is not None:
                return False
        return True

    def _tell_losses(self) -> None:
        """What a log has lost is found out with its next record, perhaps, and none comes."""
        for window in self.gateway.windows:
            if window.log.lost_from is not None and window.log.lost_from >= window.log.end:
                window.log.append(b"next")
                window.log_grew()

    def _why_stuck(self) -> str:
        return "; ".join(
            f"{window!r} {window.core} of {window.log.end}:"
            f" {None if window.core is None else window.core.stats()}"
            for window in self.gateway.windows
        )

    def _check_end(self, window: Window) -> None:
        window.recount()
        if not self.policy.reliable:
            window.unreliable.at_end()
            return
        checkers = window.checkers
        lost = [offset for offset in window.log.records if offset not in checkers.causes]
        if lost:
            raise CheckFailure("NothingLost", f"{lost} have no end")
        dead = {o for o, cause in checkers.causes.items() if cause == "dead-lettered"}
        # A letter is of one record: another one at its offset, after a lost tail, has its own.
        log = window.log
        letters = window.dead_letters
        written = {o for o, at in letters if o not in log.records or at == log.epoch_at(o)}
        missing = dead - written
        if missing:
            raise CheckFailure("NothingLost", f"{sorted(missing)} never reached the DLQ")
        stored = self.gateway.store.windows.get(window.key)
        owned = self.gateway.store.fences.get(window.key) == window.fence  # not set back
        if stored is not None and owned and (stored.leases or stored.retries):
            raise CheckFailure("BoundedMemory", f"left behind: {stored.leases} {stored.retries}")


def run(seed: int, *, verbose: bool = False, traced: bool = False) -> World:
    return World(seed, verbose=verbose, traced=traced).run()
