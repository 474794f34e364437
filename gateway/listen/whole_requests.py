"""The requests of one connection that are held here: until they are whole, or answered."""

from __future__ import annotations

from gateway.core.forwarding.connection_state import ConnectionState
from gateway.listen.bounds import Bounds
from gateway.listen.socket_pair import SocketPair


class WholeRequests:
    def __init__(
        self, connection: int, state: ConnectionState, sockets: SocketPair, bounds: Bounds
    ) -> None:
        self.held_bytes = 0
        self._connection = connection
        self._state = state
        self._sockets = sockets
        self._bounds = bounds
        self._passing: object | None = None  # the request that waits for its turn, or has it

    def look(self) -> None:
        """Something has come, or gone."""
        passing = self._state.passing_whole
        if passing is not self._passing:
            if self._passing is not None:
                self._bounds.end_whole(self._connection)
            self._passing = passing
            begun = passing is None or self._bounds.begin_whole(
                self._connection, len(passing.payload) + passing.left, self._go_on
            )
            self._sockets.waits = not begun
            self._sockets.balance()
        elif passing is not None:
            self._bounds.whole_came(self._connection)
        self.held_bytes = self._state.collected_bytes
        self._bounds.hold_request(self._connection, 0 if passing else self.held_bytes)

    def _go_on(self) -> None:
        self._sockets.waits = False
        self._sockets.balance()
