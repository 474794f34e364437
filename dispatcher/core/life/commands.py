"""Commands of the life of a window (life.py) to its shell.

Effects of the dispatcher (model.py) that are not the answer to an event are commands, too.
Commands of every event have an `__init__` of their own, for its speed (model.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NewType

from dispatcher.core.epochs import Epochs
from dispatcher.core.model import Event
from dispatcher.core.steps import Effect, MembersReady, Noticed, ReadOn, TailDone, WriteDeadLetters
from dispatcher.core.stored.cut import Cut

Ticket = NewType("Ticket", int)
NO_TICKET: Final = Ticket(0)  # of an event that nobody waits for


@dataclass(frozen=True, slots=True)
class Load:
    """Claim the window and read it, then report `loaded` or `load_failed`. `cut`: what the log has
    lost, which the window is to forget.
    """

    cut: Cut | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Report `pause_over` after this time."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class Persist:
    """There is something to write: ask for it with `take_batch`."""


PERSIST: Final = Persist()  # one for all


@dataclass(frozen=True, slots=True)
class Tell:
    """Handle this event next, as one that nobody waits for."""

    event: Event


@dataclass(init=False, slots=True)
class Answer:
    """The event is handled, and its changes are in the store."""

    ticket: Ticket
    effects: list[Effect]

    def __init__(self, ticket: Ticket, effects: list[Effect]) -> None:
        self.ticket = ticket
        self.effects = effects


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answers an event with a retriable error: nothing is known to be kept of it."""

    ticket: Ticket
    why: str


@dataclass(frozen=True, slots=True)
class StopReading:
    """Withdraw the read that was asked for with `ReadOn`, if it is still under way."""


@dataclass(init=False, slots=True)
class ForgetBelow:
    """Nobody needs the bytes of records below `offset` any more."""

    offset: int

    def __init__(self, offset: int) -> None:
        self.offset = offset


@dataclass(frozen=True, slots=True)
class TroubleBegan:
    """Trouble to be logged, once for as long as the reason is the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class TroubleOver:
    """The end of trouble, to be logged; `reason` is the last one."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetentionPassed:
    """Retention passed the window, which is to be logged: the log now starts behind the next offset
    to read.
    """

    cursor: int
    log_start: int


@dataclass(frozen=True, slots=True)
class TailLost:
    """The log has lost the records from `kept_to` to `known_end`, which is to be logged (an unclean
    election, a broker without power, or an offset that was set beyond the end). The window is
    loaded again without them; if members work on some of them, when they are done (LogCut).
    """

    known_end: int
    kept_to: int
    in_flight: int = 0  # of these records


Command = (
    Load
    | Pause
    | Persist
    | Tell
    | Answer
    | Refuse
    | StopReading
    | ForgetBelow
    | TroubleBegan
    | TroubleOver
    | RetentionPassed
    | TailLost
    | MembersReady
    | ReadOn
    | TailDone
    | WriteDeadLetters
    | Noticed
)


@dataclass(frozen=True, slots=True)
class Failure:
    why: str  # for the callers that are refused
    trouble: str = ""  # the reason that operators see until the window is up again; empty: none
    logged: bool = False  # somebody else has logged it: it is not of this window alone


@dataclass(frozen=True, slots=True)
class CommitState:
    """A state that may be committed to Kafka: it is in the store, under a fence that was valid."""

    cursor: int
    settled: list[tuple[int, int]]
    origin: int  # of this incarnation (dispatcher/core/stored/reconcile.py)
    # When the last record was settled. Two states that differ in it alone are equal.
    settled_ms: int = field(default=0, compare=False)
    epochs: Epochs = field(default=(), compare=False)  # as in Snapshot
