"""A window's life to play with: things happen one at a time, and the commands come back."""

from __future__ import annotations

from dispatcher.core.life.batches import Batch
from dispatcher.core.life.commands import (
    NO_TICKET,
    Answer,
    Command,
    Failure,
    Load,
    Refuse,
    Tell,
    Ticket,
)
from dispatcher.core.life.life import WindowLife
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Member,
    MemberId,
    Policy,
    RecordsRead,
    SessionId,
    SessionLost,
    Ticked,
)
from dispatcher.core.steps import Snapshot

M1, S1 = MemberId("m1"), SessionId("s1")
MEMBERS = (Member(M1),)
NOW_MS = 1_000
UNRELIABLE = Policy(reliable=False)
SESSION_LOST = SessionLost(M1, S1, NOW_MS)
T1, T2, T3, T4 = Ticket(1), Ticket(2), Ticket(3), Ticket(4)


def acquire(records_max: int = 100) -> Acquire:
    return Acquire(M1, S1, records_max, NOW_MS)


def acknowledge(*offsets: int, kind: AckType = AckType.ACCEPT) -> Acknowledge:
    return Acknowledge(M1, S1, [(o, o, bytes([kind])) for o in offsets], NOW_MS)


def records(start: int, end: int, *, now_ms: int = NOW_MS) -> RecordsRead:
    offsets = list(range(start, end))
    return RecordsRead(start, end, offsets, [b"%d" % offset for offset in offsets], now_ms, end)


class LifePlay:
    """A life, and all the commands it gave. A `Tell` among them is obeyed."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.life = WindowLife()
        self.life.check_invariants()

    def does(self, commands: list[Command]) -> list[Command]:
        self.life.check_invariants()
        done: list[Command] = [made for made in commands if not isinstance(made, Tell)]
        for command in commands:
            if isinstance(command, Tell):
                done += self.does(self.life.handle(command.event, NO_TICKET).commands)
        return done

    def load(self, cursor: int = 0, *, now_ms: int = NOW_MS) -> list[Command]:
        commands = self.life.loaded(
            self.policy, Snapshot(cursor), MEMBERS, now_ms, fence=7, origin=3
        )
        return self.does(commands)

    def up(self, cursor: int = 0, records_to: int = 4) -> LifePlay:
        """Loaded, with some records read and nothing that waits."""
        assert self.life.start() == [Load(None)]
        self.load(cursor)
        self.does(self.life.records_read(records(cursor, records_to), 0))
        self.life.want_commit()
        self.write()
        self.life.take_committable()
        return self

    def ask(self, event: Acquire | Acknowledge | Ticked, ticket: Ticket) -> list[Command]:
        return self.does(self.life.handle(event, ticket).commands)

    def take(self) -> Batch:
        batch = self.life.take_batch()
        assert batch is not None
        return batch

    def write(self) -> list[Command]:
        """Everything that waits reaches the store."""
        commands: list[Command] = []
        while (batch := self.life.take_batch()) is not None:
            commands += self.does(self.life.persisted(batch))
        return commands

    def breaks(self, now_ms: int = NOW_MS, failure: Failure | None = None) -> list[Command]:
        return self.does(self.life.broke(failure or Failure("gone"), now_ms))


def tickets(commands: list[Command]) -> list[tuple[type[Command], Ticket]]:
    return [
        (type(command), command.ticket)
        for command in commands
        if isinstance(command, Answer | Refuse)
    ]
