"""What a client of a share group did wrong, with the error code that it is answered."""

from __future__ import annotations

from gateway.core.wire.errors import ErrorCode


class GroupError(Exception):
    """The peer broke the protocol; `code` is the answer to it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class UnknownMember(GroupError):
    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedMemberEpoch(GroupError):
    code = ErrorCode.FENCED_MEMBER_EPOCH


class InvalidRequest(GroupError):
    code = ErrorCode.INVALID_REQUEST


class GroupFull(GroupError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class SessionNotFound(GroupError):
    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidSessionEpoch(GroupError):
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class SessionLimitReached(GroupError):
    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class GroupDenied(GroupError):
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
