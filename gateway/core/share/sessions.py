"""Share sessions of one node: epochs and the partitions each covers (KIP-932, ShareSession).

Epoch 0 opens, then 1, 2, 3 … per request, fetches and acknowledgements sharing the counter; -1
closes. A session belongs to one (virtual broker, group, member) and to the connection it was opened
on: it ends with that connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.model import MemberId, SessionId
from gateway.core.share.membership import GroupError, InvalidRequest
from gateway.core.wire.errors import ErrorCode

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

NO_BROKER = -1  # on the bootstrap port
SessionKey = tuple[int, str, str]  # virtual broker id, group, member id
PartitionKey = tuple[bytes, int]  # topic id, partition


class SessionNotFound(GroupError):
    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidSessionEpoch(GroupError):
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class SessionLimitReached(GroupError):
    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


def session_key(broker_id: int | None, group: str, member_id: str) -> SessionKey:
    return (NO_BROKER if broker_id is None else broker_id, group, member_id)


@dataclass(slots=True)
class ShareSession:
    session_id: SessionId
    key: SessionKey
    connection: int
    next_epoch: int = 1
    partitions: dict[PartitionKey, None] = field(default_factory=dict)  # in the order they came
    first: int = 0  # where the next fetch starts, so that no partition starves behind the others

    @property
    def group(self) -> str:
        return self.key[1]

    @property
    def member_id(self) -> MemberId:
        return MemberId(self.key[2])

    def rotated(self) -> list[PartitionKey]:
        """The session's partitions, each time starting with another one."""
        keys = list(self.partitions)
        if not keys:
            return keys
        start = self.first % len(keys)
        self.first = start + 1
        return keys[start:] + keys[:start]


@dataclass(slots=True)
class ShareSessions:
    """`boot` is unique to this run of the node, so that a session id is never reused. At most
    `sessions_max` are open at a virtual broker: every member has one with each.
    """

    boot: str
    sessions_max: int
    _by_key: dict[SessionKey, ShareSession] = field(default_factory=dict)
    _opened: int = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def open(self, key: SessionKey, connection: int, *, acknowledges: bool) -> ShareSession:
        """Epoch 0. One that was open under the same key is lost."""
        if acknowledges:
            raise InvalidRequest("Acknowledgements are not allowed in the initial epoch.")
        self._by_key.pop(key, None)
        if sum(broker == key[0] for broker, _, _ in self._by_key) >= self.sessions_max:
            raise SessionLimitReached("The limit of share sessions has been reached.")
        self._opened += 1
        session = ShareSession(SessionId(f"{self.boot}-{self._opened}"), key, connection)
        self._by_key[key] = session
        return session

    def resume(self, key: SessionKey, epoch: int, connection: int) -> ShareSession:
        """The next request of an open session (epoch > 0)."""
        session = self._by_key.get(key)
        # A session dies with its connection, also when the request on the new one overtakes the
        # news of the loss.
        if session is None or session.connection != connection:
            raise SessionNotFound("The share session is not found.")
        if epoch != session.next_epoch:
            raise InvalidSessionEpoch(
                f"The share session epoch is {epoch}, expected {session.next_epoch}."
            )
        session.next_epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, key: SessionKey, connection: int) -> ShareSession:
        """Epoch -1. The caller gives back what the session holds after its acknowledgements are
        applied.
        """
        session = self._by_key.get(key)
        if session is None or session.connection != connection:
            raise SessionNotFound("The share session is not found.")
        del self._by_key[key]
        return session

    def partitions(self, key: SessionKey) -> list[PartitionKey]:
        """What the session open under `key` covers now; nothing without one."""
        session = self._by_key.get(key)
        return [] if session is None else list(session.partitions)

    def of_group(self, group: str) -> list[ShareSession]:
        """The open ones."""
        return [session for session in self._by_key.values() if session.group == group]

    def is_open(self, session: ShareSession) -> bool:
        """Not closed, not lost, and not replaced by a later one of its member."""
        return self._by_key.get(session.key) is session

    def ended(self, session_id: SessionId) -> bool:
        """It was opened in this run of the node and is open no more."""
        return session_id.startswith(f"{self.boot}-") and all(
            session.session_id != session_id for session in self._by_key.values()
        )

    def connection_lost(self, connection: int) -> list[ShareSession]:
        lost = [s for s in self._by_key.values() if s.connection == connection]
        for session in lost:
            del self._by_key[session.key]
        return lost

    def member_gone(self, group: str, member_id: str) -> list[ShareSession]:
        gone = [s for s in self._by_key.values() if s.key[1] == group and s.key[2] == member_id]
        for session in gone:
            del self._by_key[session.key]
        return gone
