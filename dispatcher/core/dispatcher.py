"""The dispatcher of one window: events in, a Step out (ARCHITECTURE, Cores and shells).

Nothing here waits: a read, an acknowledgement, a join, a leave or a release has its consequences in
its own step; the tick only handles time. The shell persists `changes`, then performs `effects`; if
it cannot persist, it throws the dispatcher away and builds another from the store.

Decisions where the sources are silent:
- GAP (0) for an offset below `read_position` that is settled or does not exist is taken and does
  nothing; for a record that this session holds it is a release and an alarm; anything else is
  refused.
- RENEW of all records of a lease extends the lease. RENEW of a part makes that part a lease of its
  own.
- The batches of one event are applied only if none of them is refused.
- A member that closes its session or leaves is never the record's fault: its records come back at
  once, with one delivery more, also beyond `deliveries_max`. Eviction (a crash) also redelivers at
  once, but an exhausted budget goes to the policy `exhausted`: the record that kills its consumer
  is the poison record.
- REJECT goes to the policy `rejected`, also at the last permitted delivery: the client has decided.
- An operator's RETRY gives one more delivery. A REJECT then goes to `rejected` again, any other
  failure to `exhausted` if the deliveries are used up.
- A record that is parked, or on its way to the DLQ, stays so when the policies change, also if a
  node of before `rejected` and `exhausted` has put it there: only an operator, or the DLQ, ends it.
- The grace of a lost session is not persisted: after a restart it begins when the member opens
  another session, or, if it does not show up, at once. A member that opens another session lives:
  what comes back of the lost one is a clean goodbye.
- Records read while the group has no members are dropped, and read again for the next member.
- Holes in the log are settled, but not persisted: they are holes when read again.
"""

from __future__ import annotations

from typing import assert_never

from dispatcher.core.epochs import Epochs
from dispatcher.core.events.acknowledge import acknowledge
from dispatcher.core.events.acquire import acquire, not_sent, ready_for
from dispatcher.core.events.holding import hold_moved
from dispatcher.core.events.membership import (
    members_changed,
    session_closed,
    session_lost,
    session_opened,
)
from dispatcher.core.events.poisoned import dead_lettered, operator_act, retries_due
from dispatcher.core.events.reading import gone, log_cut, log_truncated, records_read
from dispatcher.core.events.room import holder
from dispatcher.core.events.step_end import finish
from dispatcher.core.events.ticking import due_ms, tick
from dispatcher.core.hold import HoldMoved
from dispatcher.core.limits import COMMITTED_RANGES_MAX
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    DeadLettered,
    Event,
    Gone,
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
    SessionId,
    SessionLost,
    SessionOpened,
    Ticked,
)
from dispatcher.core.reports.invariants import check
from dispatcher.core.reports.key_stats import KeyStats, hot_keys, key_stats, keys_with_hash
from dispatcher.core.reports.picture import Picture, picture_of
from dispatcher.core.reports.stats import (
    Held,
    ParkedRecord,
    WindowStats,
    first_unsettled,
    held_records,
    parked_offsets,
    parked_records,
    unsettled_keys,
    window_stats,
)
from dispatcher.core.steps import Snapshot, Step
from dispatcher.core.stored.restore import restore, snapshot_of
from dispatcher.core.unreliable import Unreliable


# Long: a door for each question that the rooms above ask of a window.
class Dispatcher:
    """One (group, topic, partition). Not thread-safe; a call is O(its input) unless it says
    otherwise.
    """

    def __init__(self, policy: Policy, snapshot: Snapshot) -> None:
        self._state = restore(policy, snapshot)

    def __repr__(self) -> str:
        return f"<dispatcher {self._state.window!r} {self._state.members!r}>"

    def handle(self, event: Event) -> Step:  # noqa: C901 - one case per event
        state = self._state
        if state.restored_at_ms is None:
            state.restored_at_ms = event.now_ms
        if state.retries.is_due(event.now_ms):
            retries_due(state, event.now_ms)
        match event:
            case Acquire():
                acquire(state, event)
            case Acknowledge():
                acknowledge(state, event)
            case RecordsRead():
                records_read(state, event)
            case Ticked():
                tick(state, event)
            case NotSent():
                not_sent(state, event)
            case Gone():
                gone(state, event)
            case MembersChanged():
                members_changed(state, event)
            case SessionClosed():
                session_closed(state, event)
            case SessionLost():
                session_lost(state, event)
            case SessionOpened():
                session_opened(state, event)
            case LogTruncated():
                log_truncated(state, event)
            case LogCut():
                log_cut(state, event)
            case DeadLettered():
                dead_lettered(state, event)
            case OperatorAct():
                operator_act(state, event)
            case HoldMoved():
                hold_moved(state, event)
            case _:
                assert_never(event)
        return finish(state)

    @property
    def epochs(self) -> Epochs:
        """Of the records that were read, as in Snapshot."""
        return self._state.epochs

    @property
    def known_end(self) -> int:
        """Behind the last offset that something is known of; the last of `epochs` is of that."""
        window = self._state.window
        return max(window.read_position, window.known_end)

    def retune(self, policy: Policy) -> None:
        """Another policy from now on; leases that are out keep their deadline, and read records
        stay. Span and prefetch shape the window and need a new one.
        """
        before = self._state.policy
        assert policy.span_max == before.span_max, "the span shapes the window"
        assert policy.bounded_load == before.bounded_load, "so does it the keys"
        assert policy.prefetch_per_key == before.prefetch_per_key, "so does the prefetch"
        self._state.retune(policy)

    @property
    def members(self) -> tuple[Member, ...]:
        """The members in join order."""
        return self._state.owners.router.members

    @property
    def cursor(self) -> int:
        """The next offset that is not settled: the group's committed offset in Kafka."""
        return self._state.window.cursor

    @property
    def read_position(self) -> int:
        """The next offset to read."""
        return self._state.window.read_position

    @property
    def keys_known_to(self) -> int:
        """The keys of all unsettled records before it are known: after a restart they are read
        again first.
        """
        window = self._state.window
        behind = bool(window.unread) or window.read_position < window.front
        return window.cursor if behind else window.read_position

    @property
    def front(self) -> int:
        """Behind it are the records that go on; before it all is settled but for those aside."""
        return self._state.window.front

    @property
    def draining(self) -> tuple[int, int]:
        """Keys that wait to change hands now, and those that have since the window was loaded."""
        draining = self._state.draining_keys
        return len(draining.by_key), draining.cleared

    def ready_for(self, member_id: MemberId, now_ms: int) -> int:
        """How many records an Acquire would hand out now; at most, while retries are due or the
        member was silent. To ask counts as a fetch.
        """
        return ready_for(self._state, member_id, now_ms)

    def has_session(self, member_id: MemberId, session_id: SessionId) -> bool:
        """Whether records are in flight with this share session."""
        return (member_id, session_id) in self._state.book.sessions

    def due_ms(self) -> int:
        """The time of the next tick with something to do, if the last event was a tick that had
        nothing to do (ticking.py). O(leases + members).
        """
        return due_ms(self._state)

    def settled_ranges(self) -> list[tuple[int, int]]:
        """Settled offsets behind the cursor: ascending, disjoint, non-adjacent inclusive ranges.
        O(span + records aside).
        """
        return self._state.window.settled_ranges()

    def committed_ranges(self) -> list[tuple[int, int]]:
        """The settled ranges, as precise as a commit can say. O(span + stretches aside)."""
        return self._state.window.settled_ranges(COMMITTED_RANGES_MAX)

    @property
    def passed(self) -> int:
        """The settled offsets between the cursor and the front."""
        window = self._state.window
        return window.front - window.cursor - window.aside.count

    @property
    def holder(self) -> int:
        """The offset that holds up all keys: no more records may go aside, and the last ticks said
        so; NO_OFFSET: none does.
        """
        return holder(self._state)

    def settled_count(self) -> int:
        """Settled offsets behind the cursor. O(span)."""
        return self._state.window.settled_count()

    def snapshot(self) -> Snapshot:
        """The whole window, as a store would give it back. O(span)."""
        return snapshot_of(self._state)

    def unsettled_keys(self) -> list[bytes]:
        """Distinct keys of unsettled records, in the order of their first ones. O(span)."""
        return unsettled_keys(self._state)

    def first_unsettled(self) -> list[tuple[bytes, int]]:
        """As `unsettled_keys`, each with the offset of its first unsettled record. O(span)."""
        return first_unsettled(self._state)

    def held(self) -> Held:
        """O(members)."""
        return held_records(self._state)

    def parked_offsets(self) -> list[int]:
        """Of the records that wait for an operator, ascending. O(their number)."""
        return parked_offsets(self._state)

    def parked(self, offsets: list[int]) -> list[ParkedRecord]:
        """Those of the offsets that are parked."""
        return parked_records(self._state, offsets)

    def stats(self) -> WindowStats:
        """O(span + stretches aside)."""
        return window_stats(self._state)

    def picture(self, runs_max: int) -> Picture:
        """The window's offsets in at most `runs_max` runs. O(span)."""
        return picture_of(self._state, runs_max)

    def key_stats(self, key: bytes) -> KeyStats:
        """O(its unsettled records)."""
        return key_stats(self._state, key)

    def keys_with_hash(self, key_hash: int) -> list[bytes]:
        """The keys of unsettled records that have this hash. O(keys)."""
        return keys_with_hash(self._state, key_hash)

    def hot_keys(self, count: int) -> list[KeyStats]:
        """The keys with the most unsettled records, the hottest first. O(span)."""
        return hot_keys(self._state, count)

    def check_invariants(self) -> None:
        """Recounts everything that is kept twice; AssertionError names the difference. O(span): for
        tests.
        """
        check(self._state)


Core = Dispatcher | Unreliable


def core_of(policy: Policy, snapshot: Snapshot) -> Core:
    """The dispatcher that the group's policy asks for."""
    return Dispatcher(policy, snapshot) if policy.reliable else Unreliable(policy, snapshot)
