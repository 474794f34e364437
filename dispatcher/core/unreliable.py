"""The dispatcher of one window of an unreliable group: at most once, nothing to persist.

Ring and filters are those of every group. A record is settled when it is handed out. So nothing is
in flight, and acknowledgements are answered without effect. What could not be sent after all comes
next again; if members have changed meanwhile it is dropped, as a later record of its key may have
gone to another one. A record that is read waits for a fetch of its owner, at most
`in_flight_per_member_max` of them: a member with so many is saturated, and further records for it
are dropped and counted. When members come or go, all waiting records are sorted by offset again:
the records of a key go out in order to any member.

The pace of reading:
- Records that were in the log when the first member joined are read at the pace of the member with
  the most room. A slow member loses records and holds up no other.
- Later, at most `span_max` offsets may be unread. Records beyond that are read at once, with or
  without room. While no member has room, each tick reads the new records of the log.

A record that waits more than `span_max` offsets behind the last read one is dropped, too. Cursor
and settled records go to Kafka alone: a node that dies sends again what it sent since its commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from heapq import nsmallest
from typing import assert_never

from dispatcher.core.epochs import read_on
from dispatcher.core.events.ticking import NEVER, NEXT_TICK
from dispatcher.core.hold import HoldMoved
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    DeadLettered,
    Event,
    Gone,
    Key,
    LogCut,
    LogTruncated,
    Member,
    MemberId,
    MembersChanged,
    NotSent,
    OperatorAct,
    Policy,
    RecordsRead,
    SessionClosed,
    SessionLost,
    SessionOpened,
    Ticked,
    checked,
)
from dispatcher.core.records.keys import NO_OFFSET
from dispatcher.core.records.outbox import Outbox
from dispatcher.core.records.owners import Owners
from dispatcher.core.reports.key_stats import KeyStats
from dispatcher.core.reports.picture import OffsetState, Picture, drawn, runs_of
from dispatcher.core.reports.stats import Held, MemberStats, WindowStats
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.kept_keys import kept
from dispatcher.core.routing.ring import Router
from dispatcher.core.routing.silence import fall_silent
from dispatcher.core.steps import (
    AckResult,
    Delivered,
    Effect,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    Snapshot,
    Step,
)
from keyway.commit_metadata.core.bitmap import united


# Long: the interface of Dispatcher, which is 25 methods, and the events of this core.
class Unreliable:
    """Looks like a Dispatcher from outside; its steps have no changes. Not thread-safe."""

    _log_end: int  # as of the last read, which sets it

    def __init__(self, policy: Policy, snapshot: Snapshot) -> None:
        self.policy = policy
        self.read_position = snapshot.cursor
        self.epochs = snapshot.epochs
        self._known = snapshot.settled  # from the read position on
        self._owners = Owners(None)
        self._outboxes: list[Outbox] = []  # as the members of its router
        self._reading = False
        # None: no member has read yet; the records of the log are then a backlog.
        self._backlog_end: int | None = None
        self._dropped = 0
        self._counts: dict[Notice, int] = {}
        self._effects: list[Effect] = []

    def __repr__(self) -> str:
        return f"<unreliable {self.cursor}..{self.read_position} {self._outboxes!r}>"

    # -------------------------------------------------------------------------------------- outside

    @property
    def members(self) -> tuple[Member, ...]:
        """The members in join order."""
        return self._owners.router.members

    @property
    def cursor(self) -> int:
        """The lowest offset that was neither handed out nor dropped."""
        cursor = self.read_position
        for outbox in self._outboxes:
            if outbox.waiting() > 0:
                cursor = min(cursor, outbox.offsets[0])
        return cursor

    @property
    def known_end(self) -> int:
        """Behind the last offset that something is known of."""
        return max(self.read_position, self._known[-1][1] + 1 if self._known else 0)

    @property
    def front(self) -> int:
        """The cursor: nothing goes aside."""
        return self.cursor

    @property
    def draining(self) -> tuple[int, int]:
        """Keys change hands at once: nobody holds anything."""
        return 0, 0

    def ready_for(self, member_id: MemberId, now_ms: int) -> int:
        """How many records an Acquire would hand out now; at most, if the member was silent."""
        if (outbox := self._outbox_of(member_id)) is None:
            return 0
        if outbox.attention.silent:
            return self.policy.in_flight_per_member_max
        outbox.attention.heard(now_ms)
        return outbox.waiting()

    def has_session(self, _member: MemberId, _session: object) -> bool:
        """Nobody holds anything."""
        return False

    def due_ms(self) -> int:
        """As a dispatcher's: each tick may read on, unless a read is out or nobody is there."""
        if not self._reading and self._outboxes:
            return NEXT_TICK
        lock_ms = self.policy.lock_duration_ms
        due_ms = NEVER
        for outbox in self._outboxes:
            wait = outbox.waiting() > 0
            due_ms = min(due_ms, outbox.attention.silent_ms(lock_ms, records_wait=wait))
        return due_ms

    def settled_ranges(self) -> list[tuple[int, int]]:
        """Offsets behind the cursor that do not wait, as ascending, disjoint, non-adjacent
        inclusive ranges.
        """
        ranges: list[tuple[int, int]] = []
        start = self.cursor
        for offset in sorted([offset for box in self._outboxes for offset in box.offsets]):
            if offset > start:
                ranges.append((start, offset - 1))
            start = offset + 1
        if self.read_position > start:
            ranges.append((start, self.read_position - 1))
        return united(ranges + self._known)

    @property
    def passed(self) -> int:
        """Nothing goes aside."""
        return 0

    @property
    def holder(self) -> int:
        """A record that waits for a member which is saturated is dropped, in the end."""
        return NO_OFFSET

    def committed_ranges(self) -> list[tuple[int, int]]:
        """All settled ranges: there are no more than the span has records."""
        return self.settled_ranges()

    def settled_count(self) -> int:
        """How many offsets behind the cursor are settled."""
        return sum(high - low + 1 for low, high in self.settled_ranges())

    def snapshot(self) -> Snapshot:
        """All that a commit says of the window."""
        return Snapshot(cursor=self.cursor, settled=self.settled_ranges(), epochs=self.epochs)

    def retune(self, policy: Policy) -> None:
        """Another policy for new and waiting records. Records beyond a smaller limit are dropped,
        the newest first, as if they came now. The next step counts them.
        """
        assert not policy.reliable, "another kind of window"
        self.policy = policy
        for outbox in self._outboxes:
            self._drop(outbox, outbox.keep(policy.in_flight_per_member_max))

    def unsettled_keys(self) -> list[bytes]:
        """Distinct keys of records that wait to be handed out."""
        return [*dict.fromkeys(k for box in self._outboxes for k in box.keys if k is not None)]

    def held(self) -> Held:
        """Nothing is held: a record is settled when it is sent."""
        return Held(0, 0, 0, 0)

    def stats(self) -> WindowStats:
        waiting = [key for outbox in self._outboxes for key in outbox.keys]
        return WindowStats(
            cursor=self.cursor,
            read_position=self.read_position,
            unsettled=len(waiting),
            keys=len({key for key in waiting if key is not None}) + waiting.count(None),
            in_flight=0,
            backing_off=0,
            dead_lettering=0,
            parked=[],
            span_max=self.policy.span_max,
            full_span=None,  # nothing holds it: records left behind are dropped
            draining=[],
            draining_cleared=0,
            last_sent=self.cursor - 1,
            individually_sent=self.settled_ranges(),
            dropped=self._dropped,
            members=[
                MemberStats(
                    member_id=outbox.member_id,
                    ready_keys=len(set(outbox.keys)),
                    in_flight=0,
                    draining_keys=0,
                    draining_in_flight=0,
                    draining_blocked=0,
                    dropped=outbox.dropped,
                    silent=outbox.attention.silent,
                )
                for outbox in self._outboxes
            ],
        )

    def picture(self, runs_max: int) -> Picture:
        """The window's offsets in at most `runs_max` runs. Records that wait are ready."""
        states = bytearray(self.read_position - self.cursor)
        for outbox in self._outboxes:
            for offset in outbox.offsets:
                states[offset - self.cursor] = int(OffsetState.READY)
        return drawn(runs_of(states, self.cursor), runs_max)

    def key_stats(self, key: bytes) -> KeyStats:
        """O(waiting records)."""
        waiting = [record for box in self._outboxes for record in box.records()]
        offsets = [offset for offset, held_key in waiting if held_key == key]
        member_id = None if (owner := self._owner_of(key, 0)) is None else owner.member_id
        if not offsets:
            return KeyStats(key, OffsetState.SETTLED, member_id)
        first = min(offsets)
        return KeyStats(key, OffsetState.READY, member_id, records=len(offsets), first_offset=first)

    def keys_with_hash(self, key_hash: int) -> list[bytes]:
        """The keys of waiting records that have this hash. O(waiting records)."""
        waiting = {key for box in self._outboxes for key in box.keys if key is not None}
        return sorted([key for key in waiting if key_hash32(key) == key_hash])

    def hot_keys(self, count: int) -> list[KeyStats]:
        """The keys with the most waiting records, the hottest first. O(waiting records)."""
        records = Counter(key for box in self._outboxes for key in box.keys if key is not None)
        hottest = nsmallest(count, [(-many, key) for key, many in records.items()])
        return [self.key_stats(key) for _, key in hottest]

    def check_invariants(self) -> None:
        """AssertionError names the broken rule. O(waiting records): for tests."""
        assert [m.member_id for m in self.members] == [box.member_id for box in self._outboxes]
        for outbox in self._outboxes:
            offsets = outbox.offsets
            assert len(offsets) == len(outbox.keys), f"{outbox!r}: columns differ"
            assert offsets == sorted(set(offsets)), f"{outbox!r}: not ascending"
            assert len(offsets) <= self.policy.in_flight_per_member_max, f"{outbox!r} holds more"
            assert all(offset < self.read_position for offset in offsets), f"{outbox!r}: not read"
            for offset, key in outbox.records():
                assert self._owner_of(key, offset) is outbox, f"{offset} waits for another"
        assert self.read_position - self.cursor <= self.policy.span_max
        assert not self._effects
        assert not self._counts

    # --------------------------------------------------------------------------------------- events

    def handle(self, event: Event) -> Step:  # noqa: C901 - one case per event
        match event:
            case Acquire():
                self._acquire(event)
            case Acknowledge():
                _note_heard(self._outbox_of(event.member_id), event.now_ms)
                self._effects.append(AckResult(errors=checked(event)))
            case RecordsRead():
                self._records_read(event)
            case NotSent():
                self._not_sent(event)
            case Gone():
                self._count(Notice.TRUNCATED, len(event.offsets))
            case MembersChanged():
                self._members_changed(event)
            case LogTruncated():
                self._log_truncated(event.log_start)
            case Ticked():
                self._tick(event)
            case SessionClosed() | SessionLost() | SessionOpened() | DeadLettered() | OperatorAct():
                pass  # nobody holds anything
            case HoldMoved() | LogCut():
                pass  # nothing waits: such a group has no order that a restart keeps
            case _:
                assert_never(event)
        return self._finish(ticked=isinstance(event, Ticked))

    def _acquire(self, event: Acquire) -> None:
        outbox = self._outbox_of(event.member_id)
        _note_heard(outbox, event.now_ms)
        counted = 0 if outbox is None else outbox.back
        offsets = [] if outbox is None else outbox.send(max(event.records_max, 0))
        self._count(Notice.SENT, max(0, len(offsets) - counted))
        self._effects.append(
            Delivered(
                member_id=event.member_id,
                session_id=event.session_id,
                offsets=offsets,
                attempts=[1] * len(offsets),
                deadline_ms=event.now_ms + self.policy.lock_duration_ms,
            )
        )

    def _not_sent(self, event: NotSent) -> None:
        outbox = self._outbox_of(event.member_id)
        back = 0 if outbox is None else outbox.put_back(event.offsets)
        self._drop(outbox, len(event.offsets) - back)
        if outbox is not None:
            lost = outbox.forget_below(self.read_position - self.policy.span_max)
            self._drop(outbox, lost + outbox.keep(self.policy.in_flight_per_member_max))

    def _records_read(self, event: RecordsRead) -> None:
        self._reading = False
        start = self.read_position
        if not self._outboxes or event.start > start or event.end <= start:
            return
        assert len(event.offsets) == len(event.keys), "columns of unequal length"
        if self._backlog_end is None:
            self._backlog_end = event.log_end
        self._log_end = event.log_end
        known = iter(self._known)
        low, high = next(known, (event.end, event.end))
        for at in range(bisect_left(event.offsets, start), len(event.offsets)):
            offset = event.offsets[at]
            while high < offset:
                low, high = next(known, (event.end, event.end))
            if offset < low:
                self._route(offset, kept(event.keys[at]))
        if event.epoch >= 0:
            self.epochs = read_on(self.epochs, event.epoch, start, event.end, self.known_end)
        self.read_position = event.end
        self._known = _from(self._known, event.end)
        floor = event.end - self.policy.span_max
        for outbox in self._outboxes:
            self._drop(outbox, outbox.forget_below(floor))

    def _members_changed(self, event: MembersChanged) -> None:
        if not event.members:
            # The last member is gone: waiting records are read again for the next one.
            self._known, self.read_position = self.settled_ranges(), self.cursor
            self._reading = False
            self._backlog_end = None
        waiting = self._take_waiting()
        before = {outbox.member_id: outbox for outbox in self._outboxes}
        self._outboxes = [
            before.get(member.member_id) or Outbox(member.member_id, event.now_ms)
            for member in event.members
        ]
        self._give_out(Router(event.members), waiting)

    def _take_waiting(self) -> list[tuple[int, Key]]:
        waiting: list[tuple[int, Key]] = []
        for outbox in self._outboxes:
            waiting += outbox.records()
            outbox.keep(0)
            outbox.sent = []
        waiting.sort()
        return waiting

    def _give_out(self, router: Router, waiting: list[tuple[int, Key]]) -> None:
        """Anew, among the members of `router`."""
        self._owners.choose(router, [outbox.attention for outbox in self._outboxes])
        for offset, key in waiting if self._outboxes else ():
            self._route(offset, key)

    def _watch_silence(self, event: Ticked) -> None:
        for outbox in self._outboxes:
            if outbox.member_id in event.waiting:
                outbox.attention.heard(event.now_ms)
        back = [outbox for outbox in self._outboxes if outbox.attention.comes_back()]
        for outbox in back:
            self._tell(Notice.HEARD_AGAIN, outbox)
        attentions = [outbox.attention for outbox in self._outboxes]
        wait = [outbox.waiting() > 0 for outbox in self._outboxes]
        fallen = fall_silent(attentions, wait, self.policy.lock_duration_ms, event.now_ms)
        for at in fallen:
            self._tell(Notice.SILENT, self._outboxes[at])
        if back or fallen:
            self._give_out(self._owners.router, self._take_waiting())

    def _tell(self, notice: Notice, outbox: Outbox) -> None:
        self._effects.append(Noticed(notice=notice, count=1, detail=f"member {outbox.member_id}"))

    def _log_truncated(self, log_start: int) -> None:
        self._count(Notice.TRUNCATED, sum(box.forget_below(log_start) for box in self._outboxes))
        if log_start > self.read_position:
            self.read_position = log_start
            self._reading = False
            self._known = _from(self._known, log_start)

    def _tick(self, event: Ticked) -> None:
        self._watch_silence(event)
        for outbox in self._outboxes:
            if outbox.saturated and not outbox.told:
                detail = f"member {outbox.member_id} dropped {outbox.dropped}"
                self._effects.append(Noticed(notice=Notice.SATURATED, count=1, detail=detail))
                outbox.told = True
            if outbox.waiting() * 2 <= self.policy.in_flight_per_member_max:
                outbox.saturated = outbox.told = False

    def _route(self, offset: int, key: Key) -> None:
        outbox = self._owner_of(key, offset)
        if outbox is None:
            self._count(Notice.SKIPPED, 1)
        elif outbox.waiting() >= self.policy.in_flight_per_member_max:
            self._drop(outbox, 1)
        else:
            outbox.put(offset, key)

    def _owner_of(self, key: Key, offset: int) -> Outbox | None:
        index = self._owners.ring_owner(key, offset)
        return None if index < 0 else self._outboxes[index]

    def _outbox_of(self, member_id: MemberId) -> Outbox | None:
        for outbox in self._outboxes:
            if outbox.member_id == member_id:
                return outbox
        return None

    def _drop(self, outbox: Outbox | None, count: int) -> None:
        self._count(Notice.UNDELIVERED, count)
        self._dropped += count
        if outbox is not None and count:
            outbox.dropped += count
            outbox.saturated = True

    def _count(self, notice: Notice, count: int) -> None:
        if count:
            self._counts[notice] = self._counts.get(notice, 0) + count

    # ------------------------------------------------------------------------------------- the step

    def _finish(self, *, ticked: bool) -> Step:
        woken: list[MemberId] = []
        for outbox in self._outboxes:
            awake = outbox.waiting() > 0
            if awake and not outbox.awake:
                woken.append(outbox.member_id)
            outbox.awake = awake
        if woken:
            self._effects.append(MembersReady(members=woken))
        offsets_max = self._readable(ticked=ticked)
        if offsets_max > 0:
            self._reading = True
            self._effects.append(ReadOn(position=self.read_position, offsets_max=offsets_max))
        effects, self._effects = self._effects, []
        effects += [Noticed(notice=notice, count=count) for notice, count in self._counts.items()]
        self._counts = {}
        return Step(changes=[], effects=effects)

    def _readable(self, *, ticked: bool) -> int:
        """How many offsets to read now; 0 = none. See the module's header."""
        if self._reading or not self._outboxes:
            return 0
        span = self.policy.span_max
        live = self._backlog_end is not None and self.read_position >= self._backlog_end
        if live and self._log_end - self.read_position > span:
            return span
        attentive = [box for box in self._outboxes if not box.attention.silent]
        waiting = min([outbox.waiting() for outbox in attentive or self._outboxes])
        room = self.policy.in_flight_per_member_max - waiting
        if room * 2 >= self.policy.in_flight_per_member_max or (ticked and room > 0):
            return min(room, span)
        return span if ticked and live else 0


def _from(ranges: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """The part of ascending ranges from `start` on."""
    return [(max(low, start), high) for low, high in ranges if high >= start]


def _note_heard(outbox: Outbox | None, now_ms: int) -> None:
    if outbox is not None:
        outbox.attention.heard(now_ms)
