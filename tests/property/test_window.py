"""Windows under any sequence of events, against a model of a few plain dicts.

The playbook recounts the core after every event and compares it with one restored from its
persisted changes; the model has the rules for holders and for the order.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dispatcher.core.model import (
    AckType,
    DeadLettered,
    LogTruncated,
    MemberId,
    NotSent,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
    SessionId,
)
from dispatcher.core.steps import Notice, WriteDeadLetters
from tests.rig.playbook import Playbook

MEMBERS = ("c1", "c2", "c3")
KEYS = (b"a", b"b", b"c", b"d", None)
FILTERS: tuple[tuple[bytes, ...], ...] = ((), (), (), (b"a*", b"b"))

member = st.sampled_from(MEMBERS)


class WindowMachine(RuleBasedStateMachine):
    @initialize(
        span=st.sampled_from((1, 3, 8, 40)),
        held=st.sampled_from((0, 2, 1_000, 1_000)),
        room=st.sampled_from((1, 3, 1_000)),
        prefetch=st.sampled_from((1, 1, 2, 3)),
        rejected=st.sampled_from(PoisonPolicy),
        exhausted=st.sampled_from(PoisonPolicy),
    )
    def start(
        self,
        span: int,
        held: int,
        room: int,
        prefetch: int,
        rejected: PoisonPolicy,
        exhausted: PoisonPolicy,
    ) -> None:
        policy = Policy(
            span_max=span,
            held_max=held,
            in_flight_per_member_max=room,
            prefetch_per_key=prefetch,
            rejected=rejected,
            exhausted=exhausted,
            deliveries_max=2,
            lock_duration_ms=5_000,
            backoff_base_ms=700,
        )
        self.play = Playbook(policy)
        self.held: dict[int, str] = {}  # offset -> member; the session is that of the generation
        self.generation = dict.fromkeys(MEMBERS, 1)
        self.left: dict[str, int] = {}  # with sessions that it did not close -> since when
        self.missing: dict[str, int] = {}  # since a restart, with records
        self.settled: set[int] = set()
        self.writing: list[int] = []
        self.log_start = 0

    def session(self, name: str) -> str:
        return f"{name}/{self.generation[name]}"

    def present(self, name: str) -> bool:
        return any(m.member_id == name for m in self.play.core.members)

    def note(self) -> None:
        """Notes the dead letters of the last step as being written."""
        for effect in self.play.step.effects:
            if isinstance(effect, WriteDeadLetters):
                self.writing += effect.offsets

    def taken_back(self, name: str) -> None:
        self.held = {o: holder for o, holder in self.held.items() if holder != name}

    # ------------------------------------------------------------------------------------- events

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8), hole=st.integers(0, 3))
    def produce(self, keys: list[bytes | None], hole: int) -> None:
        self.play.log_end += hole
        self.play.produce(*keys)
        self.note()

    @rule(name=member, filters=st.sampled_from(FILTERS))
    def join(self, name: str, filters: tuple[bytes, ...]) -> None:
        if not self.present(name):
            self.play.join(name, filters=filters)
            self.note()
            self.missing.pop(name, None)

    @rule(name=member, reason=st.sampled_from((Reason.MEMBER_LEFT, Reason.MEMBER_EVICTED)))
    def leave(self, name: str, reason: Reason) -> None:
        if self.present(name):
            self.play.leave(name, reason)
            self.note()
            self.taken_back(name)
            self.generation[name] += 1

    @rule(name=member)
    def leave_before_its_acknowledgements(self, name: str) -> None:
        if self.present(name):
            self.play.leave(name, closes=False)
            self.note()
            self.left[name] = self.play.now_ms

    @rule(name=member)
    def close(self, name: str) -> None:
        self.play.close(name, self.session(name))
        self.note()
        self.taken_back(name)
        self.generation[name] += 1

    @rule(name=member, records_max=st.integers(1, 6))
    def acquire(self, name: str, records_max: int) -> None:
        offsets = self.play.acquire(name, records_max, self.session(name))
        self.note()
        play = self.play
        assert len(offsets) <= records_max
        for offset in offsets:
            assert offset not in self.held, "in two hands"
            key = play.log[offset]
            if key is not None:
                earlier = [o for o in play.log if o < offset and play.log[o] == key]
                waiting = [o for o in earlier if not self.is_settled(o)]
                assert len(waiting) < play.policy.prefetch_per_key, "out of order"
                assert all(self.held.get(o) == name for o in waiting), "two owners"
            self.held[offset] = name
        mine = sum(holder == name for holder in self.held.values())
        assert mine <= play.policy.in_flight_per_member_max

    def is_settled(self, offset: int) -> bool:
        return offset < self.play.core.cursor or any(
            low <= offset <= high for low, high in self.play.core.settled_ranges()
        )

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kind=st.sampled_from((1, 1, 1, 2, 3, 0, 4)))
    def acknowledge(self, data: Any, kind: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.held)))
        name = self.held[offset]
        assert self.play.ack(name, offset, AckType(kind), self.session(name)) == [None]
        self.note()
        if kind != AckType.RENEW:
            del self.held[offset]
        if kind == AckType.REJECT:
            dropped = self.play.policy.rejected is PoisonPolicy.DROP
            assert self.is_settled(offset) == dropped
        if kind == AckType.ACCEPT:
            assert self.is_settled(offset)
            assert self.play.notices()[Notice.ACCEPTED] == 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def not_sent(self, data: Any) -> None:
        """Some of a member's records never left the gateway."""
        name = data.draw(st.sampled_from(sorted(set(self.held.values()))))
        mine = sorted(offset for offset, holder in self.held.items() if holder == name)
        offsets = data.draw(st.lists(st.sampled_from(mine), unique=True, min_size=1).map(sorted))
        before = {retry.offset: retry.deliveries for retry in self.play.stored.retries}
        session = SessionId(self.session(name))
        self.play.on(NotSent(MemberId(name), session, offsets, self.play.now_ms))
        self.note()
        after = {retry.offset: retry.deliveries for retry in self.play.stored.retries}
        for offset in offsets:
            assert after[offset] == before.get(offset, 0), "it was no delivery"
            del self.held[offset]

    @rule(name=member, first=st.integers(0, 60), count=st.integers(1, 4), kind=st.integers(1, 4))
    def acknowledge_foreign(self, name: str, first: int, count: int, kind: int) -> None:
        offsets = range(first, first + count)
        if any(self.held.get(offset) == name for offset in offsets):
            return
        errors = self.play.acks(
            name, [(first, first + count - 1, bytes([kind]))], self.session(name)
        )
        gone = first + count <= self.log_start  # of which nobody can say anything
        assert errors != [None] or gone
        assert self.play.step.changes == [] or self.play.notices()

    @rule(ms=st.sampled_from((1, 700, 1_400, 5_000)))
    def wait(self, ms: int) -> None:
        ended = {
            offset
            for lease in self.play.stored.leases
            if lease.deadline_ms <= self.play.now_ms + ms
            for offset in lease.offsets
        }
        self.held = {o: holder for o, holder in self.held.items() if o not in ended}
        self.play.wait(ms)
        grace_ms = self.play.policy.disconnect_grace_ms
        for gone in (self.left, self.missing):
            for name, since_ms in list(gone.items()):
                if self.play.now_ms >= since_ms + grace_ms:
                    self.taken_back(name)
                    del gone[name]
                    self.generation[name] += 1
        self.note()

    @precondition(lambda self: self.writing)
    @rule(durable=st.booleans())
    def dead_lettered(self, durable: bool) -> None:
        offsets, self.writing = self.writing, []
        self.play.on(DeadLettered(offsets, durable, self.play.now_ms))
        self.note()

    @rule(verb=st.sampled_from(OperatorVerb))
    def operator(self, verb: OperatorVerb) -> None:
        offsets = [parked.offset for parked in self.play.core.stats().parked]
        self.play.on(OperatorAct(verb, offsets, self.play.now_ms))
        self.note()

    @rule(ahead=st.integers(0, 5))
    def truncate(self, ahead: int) -> None:
        log_start = self.play.core.cursor + ahead
        self.play.log_end = max(self.play.log_end, log_start)
        self.play.on(LogTruncated(log_start, self.play.now_ms))
        self.note()
        self.held = {o: holder for o, holder in self.held.items() if o >= log_start}
        self.log_start = max(self.log_start, log_start)

    @rule()
    def restart(self) -> None:
        members = self.play.core.members
        self.writing = []
        self.play.restart()
        self.left = {}
        there = {one.member_id for one in members}
        self.missing = dict.fromkeys({*self.held.values()} - there, self.play.now_ms)
        for one in members:
            self.play.join(one.member_id, filters=one.filters)
            self.note()
        self.play.read()
        self.note()

    @invariant()
    def holders_hold(self) -> None:
        if hasattr(self, "play"):
            in_flight = {o for lease in self.play.core.snapshot().leases for o in lease.offsets}
            assert set(self.held) <= in_flight
            assert not any(self.is_settled(offset) for offset in self.held)


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(stateful_step_count=60)
