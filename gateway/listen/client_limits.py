"""The limits of clients: the account of each connection, and its waits (docs/limits.md).

A connection gets its account when enough is known to choose one, and another one when more is known
(core/client_limits/rules.py). A connection that is too many is closed then. Until its account is
known it counts by its address, so that strangers who never tell do not fill the node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.accounts import Accounts
from gateway.core.client_limits.rules import Rule, Undecided, Who
from gateway.core.client_limits.throttle_field import THROTTLE_BYTES, throttle_at, throttled
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Effect
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.long_bytes import LongBytes
from gateway.listen.limits import UNDECIDED_MIN
from gateway.listen.socket_pair import SocketPair

log = structlog.get_logger("keyway.limits")

_LONG_MS = 3_600_000  # a request beyond this is a limit that was set by mistake


class HasAccount(Protocol):
    """A connection, as its limits see it."""

    def limit_again(self) -> None: ...


@dataclass(slots=True)
class ClientLimits:
    """The limits of all connections of a node."""

    accounts: Accounts
    _undecided: dict[str, set[int]] = field(default_factory=dict)  # connections, by address

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> ClientLimits:
        return cls(Accounts(rules))

    def account(self, connection: int, who: Who) -> Account | None:
        """The account of a new connection, or of one about which more is known. None: nothing
        limits it, or it is not known yet whose it is.
        """
        self.left(connection, who.address)
        if not self.accounts.rules:
            return None
        found = self.accounts.find(who, time.monotonic_ns())
        if isinstance(found, Undecided):
            self._undecided.setdefault(who.address, set()).add(connection)
            return None
        return found

    def left(self, connection: int, address: str) -> None:
        """It is gone, or no longer undecided."""
        undecided = self._undecided.get(address, set())
        undecided.discard(connection)
        if not undecided:
            self._undecided.pop(address, None)

    def admits(self, connection: int, account: Account | None, who: Who) -> bool:
        """Whether its account may have one more connection, or its address one more whose account
        is not known yet. One line for an episode of refusals.
        """
        if account is None:
            undecided = self._undecided.get(who.address, set())
            few = connection not in undecided or len(undecided) <= UNDECIDED_MIN
            return few or self._admits_undecided(len(undecided), who)
        limit = self.accounts.rule(account).connections
        if limit is None or len(account.connections) < limit:
            account.refusing = False
            return True
        self._refuse(account, limit, who)
        return False

    def _admits_undecided(self, undecided: int, who: Who) -> bool:
        account = self.accounts.of_address(who, time.monotonic_ns())
        limit = None if account is None else self.accounts.rule(account).connections
        if account is None or limit is None or undecided <= limit:
            return True
        self._refuse(account, limit, who)
        return False

    def _refuse(self, account: Account, limit: int, who: Who) -> None:
        account.refused += 1
        if not account.refusing:
            account.refusing = True
            log.warning(
                "connections_refused",
                rule=account.rule,
                limit=limit,
                principal=who.principal,
                client_id=who.client_id,
                address=who.address,
                detail="each further connection is counted in /v1/limits and /metrics",
            )

    def may_open_session(self, account: Account | None, open_on: Callable[[int], int]) -> bool:
        """`open_on`: the share sessions that were opened on a connection."""
        if account is None:
            return True
        limit = self.accounts.rule(account).share_sessions
        if limit is None or sessions_of(account, open_on) < limit:
            return True
        account.refused += 1
        return False

    def replace(self, rules: Sequence[Rule], connections: Iterable[HasAccount]) -> None:
        """From now on these rules hold, also for open connections. No connection is closed."""
        self.accounts.replace(rules)
        for connection in connections:
            connection.limit_again()


def sessions_of(account: Account, open_on: Callable[[int], int]) -> int:
    return sum(open_on(connection) for connection in account.connections)


class Muting:
    """The waits of one connection. Its client is not read meanwhile."""

    def __init__(
        self,
        state: ConnectionState,
        sockets: SocketPair,
        perform: Callable[[list[Effect]], None],
    ) -> None:
        self._state = state
        self._sockets = sockets
        self._perform = perform
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Begins the wait that the last step asked for, if any."""
        until_ns = self._state.muted_until_ns
        if until_ns == 0 or self._timer is not None or self._sockets.over:
            return
        wait_s = min((until_ns - time.monotonic_ns()) / 1e9, _LONG_MS / 1e3)
        self._sockets.muted = True
        self._sockets.balance()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._over)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._sockets.muted = False
        self._perform(self._state.unmute(time.monotonic_ns()))
        self.look()
        self._sockets.balance()


def told(
    account: Account, api_key: int, version: int, head: bytes, body: bytes | LongBytes
) -> bytes | LongBytes:
    """The body of an answer of the gateway behind its head, with the wait of its account in it."""
    size = len(head) + len(body)
    throttle_ms = account.answered(api_key, size, time.monotonic_ns())
    if throttle_ms <= 0:
        return body
    first = body.parts[0] if isinstance(body, LongBytes) else body
    begin = head + first[:THROTTLE_BYTES]
    if throttle_at(api_key, version, begin, 0, size) != len(head):
        return body
    field = throttled(begin, len(head), throttle_ms)[len(head) :]
    if isinstance(body, LongBytes) or size > LONG_STEP_BYTES:
        rest = body.parts[1:] if isinstance(body, LongBytes) else []
        return LongBytes([field, memoryview(first)[THROTTLE_BYTES:], *rest])
    return field + body[THROTTLE_BYTES:]
