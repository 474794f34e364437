"""Admin requests about a group that are to come again: to a node that coordinates it, or because
an answer has no room for it.
"""

from __future__ import annotations

from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.listen.answering import Client
from gateway.operations.errors import NotCoordinated, OperationError


def send_on(connection: Client, error: OperationError) -> None:
    """The coordinator's broker id stays the same, and so does a client's connection to it: until
    that ends, the client would ask this node again.
    """
    if isinstance(error, NotCoordinated):
        connection.drain()


def no_room(group: str) -> Message:
    """The group's row in an answer that is full. Admin clients ask again for those groups alone, as
    while a coordinator loads.
    """
    return {
        "GroupId": group,
        "ErrorCode": int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        "ErrorMessage": "There is no room for this group in the answer: ask for it again.",
    }
