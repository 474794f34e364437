"""Refusals of an act of an operator or an admin client on a Key-Shared group: each knows its Kafka
error and its HTTP status.
"""

from __future__ import annotations

from gateway.core.wire.errors import ErrorCode


class OperationError(Exception):
    """The text is for the caller."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR
    status = 500


class InvalidOperation(OperationError):
    code = ErrorCode.INVALID_REQUEST
    status = 400


class GroupUnknown(OperationError):
    code = ErrorCode.GROUP_ID_NOT_FOUND
    status = 404


class PartitionUnknown(OperationError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    status = 404


class GroupInUse(OperationError):
    """The group has members."""

    code = ErrorCode.NON_EMPTY_GROUP
    status = 409


class NotParked(OperationError):
    code = ErrorCode.INVALID_REQUEST
    status = 409


class NobodyTakes(OperationError):
    """No member that is there accepts a record's key."""

    code = ErrorCode.INVALID_REQUEST
    status = 409


class NotUnreadable(OperationError):
    code = ErrorCode.INVALID_REQUEST
    status = 409


class StateUnavailable(OperationError):
    """Redis or upstream does not answer; nothing is known to have happened. Retriable."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    status = 503


class NotCoordinated(OperationError):
    """Another node coordinates the group; nothing has happened. Retriable, there."""

    code = ErrorCode.NOT_COORDINATOR
    status = 503


class UpstreamRefused(OperationError):
    """Upstream's own word, passed on."""

    status = 502

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"upstream: {code.name}")
        self.code = code
