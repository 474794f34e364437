"""Clients that have left, whose sockets are closed some at a time.

Closing costs more than all else of an idle connection, most of it in the system. Thousands of
clients that leave at once, as from behind a load balancer that ends, would keep the event loop from
the others for a quarter of a second.
"""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.listen.limits import LEAVERS_PER_TURN


class Leaving:
    def __init__(self) -> None:
        self._transports: deque[asyncio.Transport] = deque()

    def close(self, transport: asyncio.Transport) -> None:
        """Closes it in one of the next turns of the event loop, after what was written to it."""
        if not self._transports:
            asyncio.get_running_loop().call_soon(self._close_some)
        self._transports.append(transport)

    def _close_some(self) -> None:
        for _ in range(min(LEAVERS_PER_TURN, len(self._transports))):
            self._transports.popleft().close()
        if self._transports:
            asyncio.get_running_loop().call_soon(self._close_some)
