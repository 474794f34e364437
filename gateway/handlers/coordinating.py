"""Admin requests about a group that came to a node which does not coordinate it (any more)."""

from __future__ import annotations

from gateway.listen.answering import Client
from gateway.operations.errors import NotCoordinated, OperationError


def send_on(connection: Client, error: OperationError) -> None:
    """The coordinator's broker id stays the same, and so does a client's connection to it: until
    that ends, the client would ask this node again.
    """
    if isinstance(error, NotCoordinated):
        connection.drain()
