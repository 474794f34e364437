"""The words of the dispatcher: events in, changes to persist and effects to perform out
(ARCHITECTURE, Cores and shells).

Everything here speaks of one window: one (group, topic, partition). Records come in columns
(equally long lists), never one object per record, so that loops over them stay in compiled leaf
functions. Offsets are Kafka's, ranges inclusive, times milliseconds of the shell (`now_ms`).

The objects of every step have an `__init__` of their own. mypyc compiles that; the `__init__` that
`dataclass` generates stays interpreted: five times slower, and eight times if it is frozen.
"""

# Long: the words of the dispatcher, which all its rooms import: events, changes, effects, policies.
from __future__ import annotations

from dataclasses import dataclass, field
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
    every key.
    """

    member_id: MemberId
    filters: tuple[bytes, ...] = ()


# ------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """The whole membership, in join order. Members that are gone lose their leases (`reason` says
    how they went).
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


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The log now starts at `log_start` (retention, DeleteRecords): all below it is settled."""

    log_start: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Acquire:
    member_id: MemberId
    session_id: SessionId
    records_max: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledgement batches as on the wire: (first offset, last offset, types of length 1 or
    last-first+1).
    """

    member_id: MemberId
    session_id: SessionId
    batches: list[tuple[int, int, bytes]]
    now_ms: int
    type_max: int = 4  # RENEW; a higher type is an invalid request


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
class SessionClosed:
    """The member closed its share session (epoch -1): its records are given back at once."""

    member_id: MemberId
    session_id: SessionId
    now_ms: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Connection lost, or the session reopened at epoch 0: leases end after `disconnect_grace_ms`
    unless acknowledged.
    """

    member_id: MemberId
    session_id: SessionId
    now_ms: int


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The member opened this session: every other session of it is lost (also one of before a
    restart, of which the shell knows nothing any more)."""

    member_id: MemberId
    session_id: SessionId
    now_ms: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The DLQ answered for these offsets. Not `durable`: they are held, and tried again later."""

    offsets: list[int]
    durable: bool
    now_ms: int


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
    | Acquire
    | Acknowledge
    | NotSent
    | SessionClosed
    | SessionLost
    | SessionOpened
    | DeadLettered
    | OperatorAct
    | Ticked
    | HoldMoved
)

# ------------------------------------------------------------------------------------------ changes


@dataclass(frozen=True, slots=True)
class CursorMoved:
    """Below `front`, all from the cursor on is settled but the records aside; bits are dropped."""

    cursor: int
    front: int
    aside: int = 0  # records


@dataclass(frozen=True, slots=True)
class BitsSet:
    """Bits of settled offsets: bit b of byte i of chunk c stands for c·65,536 + 8·i + b."""

    chunk: int
    byte_at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AsideSet:
    """The records aside of stretch s: bit b of byte i stands for offset s·512 + 8·i + b."""

    stretch: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """Offsets handed to one member by one Acquire. In flight = lease offsets, less settled, less
    those in `Retries` of a later step (a `RetryNoted` for an offset takes it out of its lease)."""

    lease_id: LeaseId
    member_id: MemberId
    session_id: SessionId
    deadline_ms: int
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    lease_id: LeaseId
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """Nothing of this lease is in flight any more."""

    lease_id: LeaseId


class RetryState(Enum):
    WAITING = "waiting"  # redelivered at due_ms
    IN_FLIGHT = "in_flight"  # leased again; kept for its attempt count
    PARKED = "parked"  # policy block: an operator decides
    DEAD_LETTER = "dead_letter"  # being written to the DLQ; the key is held until that is durable


@dataclass(frozen=True, slots=True)
class RetryNoted:
    """Where an offset stands that was delivered before. `deliveries` have ended; one in flight is
    the next, not counted.

    0 deliveries: only prefetched behind a record of its key that failed, and returned with it
    (PIP-493). `due_ms` of a parked record: when it was parked.
    """

    offset: int
    deliveries: int
    due_ms: int
    state: RetryState
    reason: Reason
    member_id: MemberId  # of the last delivery


@dataclass(frozen=True, slots=True)
class RetriesForgotten:
    """Settled: their attempt counts are dropped."""

    offsets: list[int]


LeaseChange = LeaseTaken | LeaseExtended | LeaseEnded
Change = CursorMoved | BitsSet | AsideSet | LeaseChange | RetryNoted | RetriesForgotten

# ------------------------------------------------------------------------------------------ effects


@dataclass(init=False, slots=True)
class Delivered:
    """The answer to Acquire: send these records to the member. Ascending offsets, attempts >= 1,
    equally long.
    """

    member_id: MemberId
    session_id: SessionId
    offsets: list[int]
    attempts: list[int]
    deadline_ms: int

    def __init__(
        self,
        member_id: MemberId,
        session_id: SessionId,
        offsets: list[int],
        attempts: list[int],
        deadline_ms: int,
    ) -> None:
        self.member_id = member_id
        self.session_id = session_id
        self.offsets = offsets
        self.attempts = attempts
        self.deadline_ms = deadline_ms


@dataclass(init=False, slots=True)
class AckResult:
    """The answer to Acknowledge: one entry per batch of the event, None = taken."""

    errors: list[AckError | None]

    def __init__(self, errors: list[AckError | None]) -> None:
        self.errors = errors


@dataclass(frozen=True, slots=True)
class WriteDeadLetters:
    """Write these records to the DLQ, then report `DeadLettered`. Equally long columns."""

    offsets: list[int]
    deliveries: list[int]
    reasons: list[Reason]
    members: list[MemberId]


@dataclass(frozen=True, slots=True)
class MembersReady:
    """These members have records they could acquire now and had none before: wake their parked
    fetches.
    """

    members: list[MemberId]


@dataclass(frozen=True, slots=True)
class ReadOn:
    """The window has room and somebody to read for: read from `position`, at most `offsets_max`
    offsets ahead.
    """

    position: int
    offsets_max: int


class Notice(Enum):
    """Facts the shell logs and counts (one place for metrics)."""

    __hash__ = object.__hash__  # Enum's own is a call of Python
    ACCEPTED = "accepted"
    RELEASED = "released"
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"  # a delivery failed that was the last permitted one, without a REJECT
    SKIPPED = "skipped"  # no member's filters accept the key
    DROPPED = "dropped"
    PARKED = "parked"
    DEAD_LETTERED = "dead_lettered"
    REDELIVERED = "redelivered"
    TIMED_OUT = "timed_out"
    LATE_ACK = "late_ack"  # refused batches
    GAP_ACK = "gap_ack"
    SPAN_FULL = "span_full"  # and stuck; detail: its first offset and that key's hash
    TRUNCATED = "truncated"  # unsettled, and the log no longer has them; if never read, offsets
    SENT = "sent"  # and thereby settled, as the two below only in unreliable groups
    UNDELIVERED = "undelivered"  # dropped: their member was saturated, or they could not be sent
    SATURATED = "saturated"  # a member began to lose records; detail: its id
    SILENT = "silent"  # a member asks for nothing and owns no keys now; detail: its id
    HEARD_AGAIN = "heard_again"  # and is back; detail: its id


@dataclass(frozen=True, slots=True)
class Noticed:
    notice: Notice
    count: int
    detail: str = ""
    offset: int = -1  # the first of them, for the log; -1: not told


Effect = Delivered | AckResult | WriteDeadLetters | MembersReady | ReadOn | Noticed


@dataclass(init=False, slots=True)
class Step:
    changes: list[Change]
    effects: list[Effect]

    def __init__(self, changes: list[Change], effects: list[Effect]) -> None:
        self.changes = changes
        self.effects = effects


# ---------------------------------------------------------------------------------------- restoring


@dataclass(frozen=True, slots=True)
class LeaseState:
    lease_id: LeaseId
    member_id: MemberId
    session_id: SessionId
    deadline_ms: int
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A window as the store, or Kafka's commit metadata alone (no leases, no retries), has it.

    `settled` are the offsets >= cursor that are settled, as ascending, disjoint, non-adjacent
    inclusive ranges. `leases`, by ascending id, name the records in flight and nothing else, so
    each offset once; none if one is only there until it is ended. `retries` ascend and are not
    settled. `front`, -1 if not known, says how the store keeps the window, not what is settled.
    """

    cursor: int
    settled: list[tuple[int, int]] = field(default_factory=list)
    leases: list[LeaseState] = field(default_factory=list)
    retries: list[RetryNoted] = field(default_factory=list)
    front: int = field(default=-1, compare=False)
