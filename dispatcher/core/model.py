"""The words of the dispatcher: ids, policies, events; what comes out is in steps.py (ARCHITECTURE,
Cores and shells).

Everything here speaks of one window: one (group, topic, partition). Records come in columns
(equally long lists), never one object per record, so that loops over them stay in compiled leaf
functions. Offsets are Kafka's, ranges inclusive, times milliseconds of the shell (`now_ms`).

The objects of every step have an `__init__` of their own. mypyc compiles that; the `__init__` that
`dataclass` generates stays interpreted: five times slower, and eight times if it is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NewType

from dispatcher.core.hold import HoldMoved

Offset = NewType("Offset", int)
MemberId = NewType("MemberId", str)
# One share session of one member. Never reused, also not across restarts: a late acknowledgement of
# an earlier session of the same member must never be credited to a later one (tests/sim).
SessionId = NewType("SessionId", str)
# One Acquire of one member: the unit in which leases are stored. Never reused within a window.
LeaseId = NewType("LeaseId", int)

Key = bytes | None  # None is no key: each such record is its own order unit.


class AckType(IntEnum):
    """Acknowledge types of KIP-932, as on the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class PoisonPolicy(Enum):
    """The end of a record that was rejected, or whose deliveries are used up."""

    DROP = "drop"
    DEAD_LETTER = "dead_letter"
    BLOCK = "block"


class EvictPolicy(Enum):
    REDELIVER = "redeliver"
    ACK = "ack"  # at most once


class JoinPolicy(Enum):
    """When a member that joins gets records of keys that others held (events/joins.py)."""

    PER_KEY = "per_key"  # PIP-379's rule made exact: each key as soon as nothing of it is in flight
    LAST_SENT = "last_sent"  # PIP-282: nothing new before all that was sent by then is settled


class AckError(Enum):
    """Why one acknowledged batch was refused; nothing changed for any of its offsets."""

    INVALID_RECORD_STATE = "invalid_record_state"  # not leased to this (member, session), or late
    INVALID_REQUEST = "invalid_request"  # types not one nor one per offset, bad range or type


class Reason(Enum):
    """Why a record was given back; also the word that operators and DLQ headers see. Of a poison
    record it names the policy: REJECTED the one for rejected records, all others the one for
    exhausted records.
    """

    RELEASED = "released"
    REJECTED = "rejected"
    LOCK_TIMEOUT = "lock_timeout"
    SESSION_CLOSED = "session_closed"
    MEMBER_LEFT = "member_left"
    MEMBER_EVICTED = "member_evicted"
    GAP_ACK = "gap_ack"  # a GAP acknowledgement of an offset that exists: a release and an alarm
    OPERATOR = "operator"
    NOT_SENT = "not_sent"  # acquired, and the shell could not send it: no delivery


@dataclass(frozen=True, slots=True)
class Policy:
    """Dispatch policy of a group; defaults are KIP-932's where it has one."""

    span_max: int = 16_384  # offsets, the oldest record that goes on to the last one read
    held_max: int = 1_048_576  # records aside: they wait, and the others go on (aside.py)
    window_records: int | None = None  # in the span, not settled, at most; None: the span alone
    in_flight_per_member_max: int = 1_000  # records, per window
    prefetch_per_key: int = 1  # records of one key in flight; > 1 falls under the PIP-493 nack rule
    lock_duration_ms: int = 30_000
    deliveries_max: int = 5  # the last permitted attempt (KIP-932's share.delivery.count.limit)
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 60_000
    rejected: PoisonPolicy = PoisonPolicy.DROP  # REJECT: the client has decided, as in Kafka
    exhausted: PoisonPolicy = PoisonPolicy.BLOCK  # deliveries_max reached: nobody has decided
    on_evict: EvictPolicy = EvictPolicy.REDELIVER
    disconnect_grace_ms: int = 3_000  # six watchdog ticks of 500 ms
    join_policy: JoinPolicy = JoinPolicy.PER_KEY
    bounded_load: float | None = None  # c >= 1 of records/loads.py; None: the ring alone
    reliable: bool = True  # False: settled when sent (dispatcher/core/unreliable.py)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group that subscribes to this topic. `filters` are key globs; none accepts
    every key. `awaited`: it gets no records, as it left not long ago, or is about to get its
    partitions. What only it accepts waits for it.
    """

    member_id: MemberId
    filters: tuple[bytes, ...] = ()
    awaited: bool = False


def present(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Without those that are awaited, which come last."""
    end = len(members)
    while end > 0 and members[end - 1].awaited:
        end -= 1
    return members if end == len(members) else members[:end]


# ------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """The whole membership, in join order. Members that are gone lose their leases (`reason` says
    how they went). Members that are awaited come last, and only if others are there.
    """

    members: tuple[Member, ...]
    now_ms: int
    reason: Reason = Reason.MEMBER_LEFT


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Records read from Kafka in offset order, from `start` (== the window's `read_position`) up
    to, not including, `end`.

    `offsets` ascending, each in [start, end); `keys` equally long. An offset of [start, end) that
    is not in `offsets` does not exist for consumers (compacted, control, aborted): the window
    settles it.
    """

    start: int
    end: int
    offsets: list[int]
    keys: list[Key]
    now_ms: int
    log_end: int = -1  # of the visible records, at the time; -1 = not known
    epoch: int = -1  # of the leader that wrote them; -1 = not known


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The log now starts at `log_start` (retention, DeleteRecords): all below it is settled."""

    log_start: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """What is known of the log from `end` on is of lost records (stored/cut.py), and members work
    on some of them. Nothing of that goes out any more, and nothing is read. When they are done, the
    window says so (TailDone).
    """

    end: int
    now_ms: int


@dataclass(init=False, slots=True)
class Acquire:
    member_id: MemberId
    session_id: SessionId
    records_max: int
    now_ms: int

    def __init__(
        self, member_id: MemberId, session_id: SessionId, records_max: int, now_ms: int
    ) -> None:
        self.member_id = member_id
        self.session_id = session_id
        self.records_max = records_max
        self.now_ms = now_ms


@dataclass(init=False, slots=True)
class Acknowledge:
    """Acknowledgement batches as on the wire: (first offset, last offset, types of length 1 or
    last-first+1). `again`: they were asked before, and whether they were applied is not
    known.
    """

    member_id: MemberId
    session_id: SessionId
    batches: list[tuple[int, int, bytes]]
    now_ms: int
    type_max: int  # RENEW; a higher type is an invalid request
    again: bool

    def __init__(
        self,
        member_id: MemberId,
        session_id: SessionId,
        batches: list[tuple[int, int, bytes]],
        now_ms: int,
        type_max: int = 4,
        again: bool = False,
    ) -> None:
        self.member_id = member_id
        self.session_id = session_id
        self.batches = batches
        self.now_ms = now_ms
        self.again = again
        self.type_max = type_max


@dataclass(frozen=True, slots=True)
class NotSent:
    """The shell could not send these records that were acquired (Kafka is away): they are ready
    again at once, and it was no delivery. Offsets the session does not hold are passed over.
    """

    member_id: MemberId
    session_id: SessionId
    offsets: list[int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The log has lost these records since they were read (retention, compaction), so they could
    not be sent: they are settled. Offsets the session does not hold are passed over.
    """

    member_id: MemberId
    session_id: SessionId
    offsets: list[int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The member closed its share session (epoch -1): its records are given back at once."""

    member_id: MemberId
    session_id: SessionId
    now_ms: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Connection lost, or the session reopened at epoch 0: leases end after `disconnect_grace_ms`
    unless acknowledged. `left`: its member left the group before that, open or not the session.
    """

    member_id: MemberId
    session_id: SessionId
    now_ms: int
    left: bool = False


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The member opened this session: every other session of it is lost (also one of before a
    restart, of which the shell knows nothing any more)."""

    member_id: MemberId
    session_id: SessionId
    now_ms: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The DLQ answered for these offsets. Not `durable`: they are held, and tried again later;
    without a DLQ (`no_topic`: the group has none any more) the policy decides about them anew.
    `gone`: durable, as far as anything is left to write: the log does not have them any more.
    """

    offsets: list[int]
    durable: bool
    now_ms: int
    no_topic: bool = False
    gone: bool = False


class OperatorVerb(Enum):
    RETRY = "retry"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OperatorAct:
    """An operator decides over parked records (policy `block`, of either kind)."""

    verb: OperatorVerb
    offsets: list[int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """The watchdog, every 500 ms: lock timeouts, retries that are due. `waiting`: the members whose
    fetches wait for records of this window at that moment.
    """

    now_ms: int
    waiting: frozenset[MemberId] = frozenset()


Event = (
    MembersChanged
    | RecordsRead
    | LogTruncated
    | LogCut
    | Acquire
    | Acknowledge
    | NotSent
    | Gone
    | SessionClosed
    | SessionLost
    | SessionOpened
    | DeadLettered
    | OperatorAct
    | Ticked
    | HoldMoved
)


def checked(event: Acknowledge) -> list[AckError | None]:
    """Checks only how batches are made: nobody holds anything."""
    type_max = event.type_max
    return [malformed(first, last, types, type_max) for first, last, types in event.batches]


def malformed(first: int, last: int, types: bytes, type_max: int) -> AckError | None:
    count = last - first + 1
    if first < 0 or count < 1 or (len(types) != 1 and len(types) != count):
        return AckError.INVALID_REQUEST
    most = types[0] if len(types) == 1 else max(types)
    return AckError.INVALID_REQUEST if most > type_max else None
