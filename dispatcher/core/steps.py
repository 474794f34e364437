"""What comes out of a dispatcher: the changes of a step, to be persisted, and its effects, to be
performed after that; and the window that a store gives back (ARCHITECTURE, Cores and shells).

As in model.py: columns, Kafka's offsets, inclusive ranges, and an `__init__` of their own for the
objects of every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dispatcher.core.epochs import Epochs, last_epoch
from dispatcher.core.model import AckError, LeaseId, MemberId, Reason, SessionId

# ------------------------------------------------------------------------------------------ changes


@dataclass(init=False, slots=True)
class CursorMoved:
    """Below `front`, all from the cursor on is settled but the records aside; bits are dropped."""

    cursor: int
    front: int
    aside: int  # records

    def __init__(self, cursor: int, front: int, aside: int = 0) -> None:
        self.cursor = cursor
        self.front = front
        self.aside = aside


@dataclass(init=False, slots=True)
class BitsSet:
    """Bits of settled offsets: bit b of byte i of chunk c stands for c·65,536 + 8·i + b."""

    chunk: int
    byte_at: int
    data: bytes

    def __init__(self, chunk: int, byte_at: int, data: bytes) -> None:
        self.chunk = chunk
        self.byte_at = byte_at
        self.data = data


@dataclass(frozen=True, slots=True)
class AsideSet:
    """The records aside of stretch s: bit b of byte i stands for offset s·512 + 8·i + b."""

    stretch: int
    data: bytes


@dataclass(init=False, slots=True)
class LeaseTaken:
    """Offsets handed to one member by one Acquire. In flight = lease offsets, less settled, less
    those in `Retries` of a later step (a `RetryNoted` for an offset takes it out of its lease)."""

    lease_id: LeaseId
    member_id: MemberId
    session_id: SessionId
    deadline_ms: int
    offsets: list[int]

    def __init__(
        self,
        lease_id: LeaseId,
        member_id: MemberId,
        session_id: SessionId,
        deadline_ms: int,
        offsets: list[int],
    ) -> None:
        self.lease_id = lease_id
        self.member_id = member_id
        self.session_id = session_id
        self.deadline_ms = deadline_ms
        self.offsets = offsets


@dataclass(frozen=True, slots=True)
class LeaseExtended:
    lease_id: LeaseId
    deadline_ms: int


@dataclass(init=False, slots=True)
class LeaseEnded:
    """Nothing of this lease is in flight any more."""

    lease_id: LeaseId

    def __init__(self, lease_id: LeaseId) -> None:
        self.lease_id = lease_id


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


@dataclass(frozen=True, slots=True)
class EpochsMoved:
    """The last record that was read is of another leader epoch than the one before."""

    epochs: Epochs


LeaseChange = LeaseTaken | LeaseExtended | LeaseEnded
Change = (
    CursorMoved | BitsSet | AsideSet | LeaseChange | RetryNoted | RetriesForgotten | EpochsMoved
)

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
    """The answer to Acknowledge: one entry per batch of the event. If all are None the batches are
    applied, else none of them.
    """

    errors: list[AckError | None]

    def __init__(self, errors: list[AckError | None]) -> None:
        self.errors = errors


@dataclass(frozen=True, slots=True)
class WriteDeadLetters:
    """Write these records to the DLQ, then report `DeadLettered`. Equally long columns. `epoch`: no
    record is of a later leader epoch; -1 = not known.
    """

    offsets: list[int]
    deliveries: list[int]
    reasons: list[Reason]
    members: list[MemberId]
    epoch: int = -1


@dataclass(init=False, slots=True)
class MembersReady:
    """These members have records they could acquire now and had none before: wake their parked
    fetches.
    """

    members: list[MemberId]

    def __init__(self, members: list[MemberId]) -> None:
        self.members = members


@dataclass(init=False, slots=True)
class ReadOn:
    """The window has room and somebody to read for: read from `position`, at most `offsets_max`
    offsets ahead.
    """

    position: int
    offsets_max: int

    def __init__(self, position: int, offsets_max: int) -> None:
        self.position = position
        self.offsets_max = offsets_max


@dataclass(frozen=True, slots=True)
class TailDone:
    """Nothing is in flight any more of what the log has lost (LogCut)."""


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


@dataclass(init=False, slots=True)
class Noticed:
    notice: Notice
    count: int
    detail: str
    offset: int  # the first of them, for the log; -1: not told

    def __init__(self, notice: Notice, count: int, detail: str = "", offset: int = -1) -> None:
        self.notice = notice
        self.count = count
        self.detail = detail
        self.offset = offset


Effect = Delivered | AckResult | WriteDeadLetters | MembersReady | ReadOn | TailDone | Noticed


@dataclass(init=False, slots=True)
class Step:
    changes: list[Change]
    effects: list[Effect]

    def __init__(self, changes: list[Change], effects: list[Effect]) -> None:
        self.changes = changes
        self.effects = effects


def settles(step: Step) -> bool:
    """Whether the event settles records. Records of an unreliable group are settled when they are
    sent.
    """
    for change in step.changes:
        if isinstance(change, (CursorMoved, BitsSet, AsideSet)):
            return True
    if not step.changes:
        for effect in step.effects:
            if isinstance(effect, Delivered) and effect.offsets:
                return True
    return False


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
    `epochs`: of the leaders whose records the window knows of.
    """

    cursor: int
    settled: list[tuple[int, int]] = field(default_factory=list)
    leases: list[LeaseState] = field(default_factory=list)
    retries: list[RetryNoted] = field(default_factory=list)
    front: int = field(default=-1, compare=False)
    epochs: Epochs = ()

    @property
    def epoch(self) -> int:
        """No record that the window knows of is of a later leader epoch; -1 = not known."""
        return last_epoch(self.epochs)
