"""Share sessions of one node: epochs and the partitions each covers (KIP-932, ShareSession).

Epoch 0 opens, then 1, 2, 3 … per request, fetches and acknowledgements sharing the counter; -1
closes. A session belongs to one (virtual broker, group, member); its requests may come on several
connections: some clients fetch on one and acknowledge on another. It ends with the connection that
opened it, as in Kafka.

A member has a session with each virtual broker. librdkafka, and Java in record_limit mode, ask them
for records one after the other, and wait at each; Java and franz-go usually ask all at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from dispatcher.core.model import MemberId, SessionId
from gateway.core.limits import CLOSED_SESSIONS_MAX
from gateway.core.share.errors import (
    InvalidRequest,
    InvalidSessionEpoch,
    SessionLimitReached,
    SessionNotFound,
)

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# Fetches in a row, each without another of its member beside it, that show who asks in turns. Who
# asks all at once has one now and then: the other broker was busy with acknowledgements.
IN_TURNS_MIN = 5

NO_BROKER = -1  # on the bootstrap port
SessionKey = tuple[int, str, str]  # virtual broker id, group, member id
PartitionKey = tuple[bytes, int]  # topic id, partition
_Place = TypeVar("_Place")


def session_key(broker_id: int | None, group: str, member_id: str) -> SessionKey:
    return (NO_BROKER if broker_id is None else broker_id, group, member_id)


class MemberSessions:
    """The open sessions of a member on this node, and how it asks in them for records."""

    def __init__(self) -> None:
        self.open: dict[SessionKey, ShareSession] = {}
        self._asking = 0  # fetches for records that are not answered yet
        self._alone = 0  # the last fetches in a row that came while no other was under way
        self._sent_on = 0  # since an answer had records

    def asks(self) -> None:
        self._alone = 0 if self._asking else self._alone + 1
        self._asking += 1

    def answered(self, *, has_records: bool) -> None:
        self._asking -= 1
        if has_records:
            self._sent_on = 0

    def may_send_on(self) -> bool:
        """Whether the fetch under way may be answered without records, so that the member asks
        where it has some. librdkafka goes round its partitions, and asks the leader of each: who
        was sent on as often has not gone there.
        """
        return (
            len(self.open) > 1
            and self._alone >= IN_TURNS_MIN
            and self._sent_on < sum(len(session.partitions) for session in self.open.values())
        )

    def sent_on(self) -> None:
        self._sent_on += 1


class ShareSession:
    def __init__(
        self, session_id: SessionId, key: SessionKey, connection: int, of_member: MemberSessions
    ) -> None:
        self.session_id = session_id
        self.key = key
        self.of_member = of_member
        self.connection = connection
        self.next_epoch = 1
        self.acknowledging = 0  # requests whose acknowledgements are not answered yet
        self.closed = False  # by the client
        # Whose last acknowledgements may be in the store, though the client is to ask again.
        self.in_doubt: set[PartitionKey] = set()
        self.partitions: dict[PartitionKey, None] = {}  # in the order they came
        # Where the next fetch starts, so that no partition starves behind the others.
        self.first = 0
        # What a handler has found out about exactly these partitions.
        self.resolved: object = None

    @property
    def group(self) -> str:
        return self.key[1]

    @property
    def member_id(self) -> MemberId:
        return MemberId(self.key[2])

    def rotated(self) -> list[PartitionKey]:
        """The session's partitions, each time starting with another one."""
        keys = list(self.partitions)
        start = self.turn(len(keys))
        return keys[start:] + keys[:start]

    def turn(self, count: int) -> int:
        """Which of `count` comes first this time."""
        start = self.first % count if count else 0
        self.first = start + 1
        return start


@dataclass(slots=True)
class ShareSessions:
    """`boot` is unique to this run of the node, so that a session id is never reused. At most
    `broker_max` are open at a virtual broker (every member has one with each), and at most
    `connection_max` of those were opened on one connection.
    """

    boot: str
    broker_max: int
    connection_max: int
    closed_max: int = CLOSED_SESSIONS_MAX  # that are remembered; and of members that left
    _by_key: dict[SessionKey, ShareSession] = field(default_factory=dict)
    _by_id: dict[SessionId, ShareSession] = field(default_factory=dict)
    _by_group: dict[str, dict[SessionKey, ShareSession]] = field(default_factory=dict)
    _by_member: dict[tuple[str, str], MemberSessions] = field(default_factory=dict)
    _by_connection: dict[int, dict[SessionKey, ShareSession]] = field(default_factory=dict)
    _at_broker: Counter[int] = field(default_factory=Counter)
    _closed: OrderedDict[SessionId, None] = field(default_factory=OrderedDict)  # the last ones
    _left: OrderedDict[SessionId, None] = field(default_factory=OrderedDict)  # the last ones
    _opened: int = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def open(self, key: SessionKey, connection: int, *, acknowledges: bool) -> ShareSession:
        """Opens a session (epoch 0). A session that was open under the same key is lost."""
        if acknowledges:
            raise InvalidRequest("Acknowledgements are not allowed in the initial epoch.")
        before = self._by_key.get(key)
        self._check_limits(key, connection, before)
        if before is not None:
            self._remove(before)
        self._opened += 1
        of_member = self._by_member.setdefault(key[1:], MemberSessions())
        session_id = SessionId(f"{self.boot}-{self._opened}")
        session = ShareSession(session_id, key, connection, of_member)
        of_member.open[key] = session
        self._by_key[key] = session
        self._by_id[session.session_id] = session
        self._by_group.setdefault(key[1], {})[key] = session
        self._by_connection.setdefault(connection, {})[key] = session
        self._at_broker[key[0]] += 1
        return session

    def _check_limits(self, key: SessionKey, connection: int, before: ShareSession | None) -> None:
        """A session that is refused ends none: nobody would hear that the one before is lost."""
        at_broker = self._at_broker[key[0]] - (before is not None)
        over = self._by_connection.get(connection, {})
        if at_broker >= self.broker_max:
            raise SessionLimitReached("The limit of share sessions has been reached.")
        if len(over) - (key in over) >= self.connection_max:
            raise SessionLimitReached("The limit of share sessions of a connection is reached.")

    def _remove(self, session: ShareSession) -> None:
        key = session.key
        del self._by_key[key]
        del self._by_id[session.session_id]
        del session.of_member.open[key]
        if not session.of_member.open:
            del self._by_member[key[1:]]
        _discard(self._by_group, key[1], key)
        _discard(self._by_connection, session.connection, key)
        self._at_broker[key[0]] -= 1
        if not self._at_broker[key[0]]:
            del self._at_broker[key[0]]

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The next request of an open session (epoch > 0)."""
        session = self._found(key)
        if epoch != session.next_epoch:
            raise InvalidSessionEpoch(
                f"The share session epoch is {epoch}, expected {session.next_epoch}."
            )
        session.next_epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, key: SessionKey) -> ShareSession:
        """Epoch -1. The caller applies the acknowledgements and gives back the session's rest, then
        comes `remember_closed`.
        """
        session = self._found(key)
        self._remove(session)
        session.closed = True
        return session

    def remember_closed(self, session: ShareSession) -> None:
        """No acknowledgement of it is on its way any more."""
        self._remember(self._closed, session)

    def member_left(self, group: str, member_id: str) -> None:
        """The member has left the group. Its sessions stay: its last acknowledgements may be on
        their way.
        """
        member = self._by_member.get((group, member_id))
        for session in () if member is None else member.open.values():
            self._remember(self._left, session)

    def _remember(self, last: OrderedDict[SessionId, None], session: ShareSession) -> None:
        last[session.session_id] = None
        if len(last) > self.closed_max:
            last.popitem(last=False)

    def find(self, key: SessionKey) -> ShareSession | None:
        """The open one."""
        return self._by_key.get(key)

    def _found(self, key: SessionKey) -> ShareSession:
        session = self._by_key.get(key)
        if session is None:
            raise SessionNotFound("The share session is not found.")
        return session

    def has(self, key: SessionKey) -> bool:
        return key in self._by_key

    def opened_on(self, connection: int) -> int:
        """Open sessions that this connection opened."""
        return len(self._by_connection.get(connection, ()))

    def of_group(self, group: str) -> list[ShareSession]:
        """The open ones."""
        return list(self._by_group.get(group, {}).values())

    def is_open(self, session: ShareSession) -> bool:
        """Whether the session is not closed, not lost, and not replaced by a later one of its
        member.
        """
        return self._by_key.get(session.key) is session

    def ended(self, session_id: SessionId) -> bool:
        """Whether the session was opened in this run of the node and is open no more."""
        return session_id.startswith(f"{self.boot}-") and session_id not in self._by_id

    def closed(self, session_id: SessionId) -> bool:
        """Whether the session was closed not long ago, and nothing more comes of it."""
        return session_id in self._closed

    def left(self, session_id: SessionId) -> bool:
        """Whether its member left the group not long ago, while it was open."""
        return session_id in self._left

    def connection_lost(self, connection: int) -> list[ShareSession]:
        """The sessions that were opened on it; they end."""
        lost = list(self._by_connection.get(connection, {}).values())
        for session in lost:
            self._remove(session)
        return lost

    def member_gone(self, group: str, member_id: str) -> list[ShareSession]:
        """The member's sessions, one with each virtual broker; they end."""
        member = self._by_member.get((group, member_id))
        gone = [] if member is None else list(member.open.values())
        for session in gone:
            self._remove(session)
        return gone


def _discard(
    index: dict[_Place, dict[SessionKey, ShareSession]], place: _Place, key: SessionKey
) -> None:
    sessions = index[place]
    del sessions[key]
    if not sessions:
        del index[place]
