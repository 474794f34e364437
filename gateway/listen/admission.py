"""Admission of clients below the process's limit of open files.

A client takes two descriptors: its own socket and the one upstream. Without a cap, the last of them
would be taken, and then nothing could be opened any more: no REST, no Redis, no log.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import cast

from gateway.listen.limits import (
    ADMIT_AGAIN_SHARE,
    DESCRIPTORS_PER_CLIENT,
    DESCRIPTORS_RESERVED,
    REST_CONNECTIONS_MAX,
)


def clients_max(descriptors: int) -> int:
    """How many clients a process with this limit of open files can take; negative: no limit. A
    process with few descriptors keeps half of them.
    """
    if descriptors < 0:
        return sys.maxsize
    reserved = min(DESCRIPTORS_RESERVED, descriptors // 2)
    return max(1, (descriptors - reserved) // DESCRIPTORS_PER_CLIENT)


def rest_connections_max(descriptors: int) -> int:
    """The same of connections to REST: they are part of the reserve."""
    if descriptors < 0:
        return REST_CONNECTIONS_MAX
    return max(1, min(REST_CONNECTIONS_MAX, descriptors // 8))


@dataclass(slots=True)
class Admission:
    """An episode begins with the first client that is refused. It ends when clients have left."""

    clients_max: int
    refused: int = 0  # in this episode; 0: there is none

    def admits(self, clients: int) -> bool:
        """Whether one more client is taken beside `clients` that are connected."""
        if clients < self.clients_max:
            return True
        self.refused += 1
        return False

    def ended(self, clients: int) -> int:
        """How many clients were refused while the node was full. 0 if the node still is full, or
        never was.
        """
        if clients > self.clients_max * ADMIT_AGAIN_SHARE:
            return 0
        refused, self.refused = self.refused, 0
        return refused


class RefusedSide(asyncio.Protocol):
    """The socket of a client too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
