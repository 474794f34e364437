"""A core as a story: `Playbook(core).on(event).expect(effect)`, and shorthands for windows.

After every event the core recounts itself, and its persisted state is restored and compared with
it: a playbook cannot pass with a core that a restart would change. After a tick that did nothing,
the core must rest until it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from dispatcher.core.dispatcher import Dispatcher, core_of
from dispatcher.core.model import (
    AckError,
    Acknowledge,
    AckType,
    Acquire,
    Event,
    Key,
    Member,
    MemberId,
    MembersChanged,
    Policy,
    Reason,
    RecordsRead,
    SessionClosed,
    SessionId,
    SessionLost,
    Ticked,
)
from dispatcher.core.routing.ring import Router
from dispatcher.core.steps import (
    AckResult,
    Change,
    Delivered,
    Effect,
    Notice,
    Noticed,
    ReadOn,
    Snapshot,
    Step,
    WriteDeadLetters,
)
from dispatcher.core.stored.snapshot import apply_changes


class Playbook:
    def __init__(self, policy: Policy | None = None, snapshot: Snapshot | None = None) -> None:
        self.policy = policy or Policy()
        self.stored = snapshot or Snapshot(cursor=0)
        # An unreliable one is spoken to in the same words.
        self.core = cast("Dispatcher", core_of(self.policy, self.stored))
        self.now_ms = 1_000
        self.step = Step([], [])
        self.log: dict[int, Key] = {}  # the records that the shorthands produced
        self.log_end = self.stored.cursor

    def on(self, event: Event) -> Playbook:
        if isinstance(event, RecordsRead):
            self.log.update(zip(event.offsets, event.keys, strict=True))
        self.step = self.core.handle(event)
        self.core.check_invariants()
        if self.policy.reliable:
            self.stored = apply_changes(self.stored, self.step.changes)
            self._check_stored()
        else:
            assert not self.step.changes, "of an unreliable group nothing is stored"
        return self

    def expect(self, *effects: Effect) -> Playbook:
        for effect in effects:
            assert effect in self.step.effects, f"{effect} is not in {self.step.effects}"
        return self

    def persists(self, *changes: Change) -> Playbook:
        for change in changes:
            assert change in self.step.changes, f"{change} is not in {self.step.changes}"
        return self

    def effects(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.step.effects if isinstance(effect, kind)]

    def notices(self) -> dict[Notice, int]:
        return {e.notice: e.count for e in self.step.effects if isinstance(e, Noticed)}

    def restart(self) -> Playbook:
        """A crash: the core is gone, another is built from the persisted state, and reads again."""
        if not self.policy.reliable:
            self.stored = self.core.snapshot()  # as if Kafka had just got it
        self.core = cast("Dispatcher", core_of(self.policy, self.stored))
        self.core.check_invariants()
        return self

    # ----------------------------------------------------------------------------------- shorthands

    def join(self, *names: str, filters: tuple[bytes, ...] = ()) -> Playbook:
        added = tuple(Member(MemberId(name), filters) for name in names)
        return self.on(MembersChanged(self.core.members + added, self.now_ms))

    def leave(
        self, name: str, reason: Reason = Reason.MEMBER_LEFT, *, closes: bool = True
    ) -> Playbook:
        """`closes`: who says goodbye closes its sessions, too."""
        rest = tuple(m for m in self.core.members if m.member_id != name)
        self.on(MembersChanged(rest, self.now_ms, reason))
        held = {lease.session_id for lease in self.stored.leases if lease.member_id == name}
        for session in sorted(held) if closes and reason is Reason.MEMBER_LEFT else ():
            self.close(name, session)
        return self

    def produce(self, *keys: Key) -> Playbook:
        """Appends records and has the window read them, as far as it has room."""
        for key in keys:
            self.log[self.log_end] = key
            self.log_end += 1
        return self.read()

    def hole(self, count: int = 1) -> Playbook:
        self.log_end += count
        return self.read()

    def read(self) -> Playbook:
        start = self.core.read_position
        end = min(self.log_end, self.core.front + self.policy.span_max)
        offsets = [offset for offset in range(start, end) if offset in self.log]
        keys = [self.log[offset] for offset in offsets]
        return self.on(RecordsRead(start, end, offsets, keys, self.now_ms, self.log_end))

    def read_part(self, start: int, end: int) -> Playbook:
        """The answer to a `ReadOn` that goes no further than it asked."""
        offsets = [offset for offset in range(start, min(end, self.log_end)) if offset in self.log]
        keys = [self.log[offset] for offset in offsets]
        return self.on(RecordsRead(start, end, offsets, keys, self.now_ms, self.log_end))

    def acquire(self, name: str, records_max: int = 1_000, session: str = "s1") -> list[int]:
        event = Acquire(MemberId(name), SessionId(session), records_max, self.now_ms)
        return self.on(event).delivered().offsets

    def delivered(self) -> Delivered:
        (effect,) = [e for e in self.step.effects if isinstance(e, Delivered)]
        return effect

    def ack(
        self,
        name: str,
        offsets: int | Iterable[int],
        kind: AckType = AckType.ACCEPT,
        session: str = "s1",
    ) -> list[AckError | None]:
        several = [offsets] if isinstance(offsets, int) else sorted(offsets)
        batches = [(offset, offset, bytes([kind])) for offset in several]
        return self.acks(name, batches, session)

    def acks(
        self, name: str, batches: Sequence[tuple[int, int, bytes]], session: str = "s1"
    ) -> list[AckError | None]:
        event = Acknowledge(MemberId(name), SessionId(session), list(batches), self.now_ms)
        self.on(event)
        (result,) = [e for e in self.step.effects if isinstance(e, AckResult)]
        return result.errors

    def close(self, name: str, session: str = "s1") -> Playbook:
        return self.on(SessionClosed(MemberId(name), SessionId(session), self.now_ms))

    def lose(self, name: str, session: str = "s1") -> Playbook:
        return self.on(SessionLost(MemberId(name), SessionId(session), self.now_ms))

    def wait(self, ms: int) -> Playbook:
        """Time passes, and the watchdog ticks at its end."""
        self.now_ms += ms
        self.on(Ticked(self.now_ms))
        if not self.step.changes and not self.step.effects:
            self._check_rest()
        return self

    def letters(self) -> list[int]:
        """Offsets that the last step wants in the DLQ."""
        return [o for e in self.step.effects if isinstance(e, WriteDeadLetters) for o in e.offsets]

    def read_on(self) -> list[tuple[int, int]]:
        return [(e.position, e.offsets_max) for e in self.step.effects if isinstance(e, ReadOn)]

    def keys_of(self, name: str, count: int = 1) -> list[bytes]:
        """Keys that `name` owns among the present members."""
        members = self.core.members
        router = Router(members)
        found: list[bytes] = []
        number = 0
        while len(found) < count:
            key = b"key-%d" % number
            if members[router.owner_of(key, 0)].member_id == name:
                found.append(key)
            number += 1
        return found

    def _check_rest(self) -> None:
        """Of a window at rest, no tick before `due_ms` does anything."""
        due_ms = self.core.due_ms()
        if due_ms > self.now_ms:
            early = self.core.handle(Ticked(due_ms - 1))
            assert early == Step([], []), f"{early} before it is due"
            assert self.core.due_ms() == due_ms, "and it stays due then"

    def _check_stored(self) -> None:
        """A core restored from the persisted state, which has read the same log, is the same."""
        twin = Dispatcher(self.policy, self.stored)
        if self.core.read_position > twin.read_position:
            members = self.core.members + self.core._state.awaited
            twin.handle(MembersChanged(members, self.now_ms))
            start = twin.read_position
            offsets = [o for o in range(start, self.core.read_position) if o in self.log]
            keys = [self.log[offset] for offset in offsets]
            twin.handle(RecordsRead(start, self.core.read_position, offsets, keys, self.now_ms))
            twin.check_invariants()
        if self.core.members or self.core.read_position == self.core.cursor:
            assert _essence(twin.snapshot()) == _essence(self.core.snapshot())


def _essence(snapshot: Snapshot) -> Snapshot:
    """Without the one difference of a restart: a retry that is in no lease any more waits."""
    return replace(snapshot, leases=[lease for lease in snapshot.leases if lease.offsets])
