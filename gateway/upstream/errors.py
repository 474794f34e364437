"""Failures of the upstream, made at the border only (sockets, timers, codec)."""

from __future__ import annotations

from gateway.core.wire.errors import error_name


class UpstreamError(Exception):
    """The upstream did not do what was asked; nothing says that asking again would be wrong."""


class Unreachable(UpstreamError):
    """No connection, or the connection broke, or what came over it was not Kafka."""


class TimedOut(UpstreamError):
    """No answer in time. Whether the upstream did what was asked is not known."""


class Refused(UpstreamError):
    """The upstream answered with a Kafka error code."""

    def __init__(self, error_code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(error_code)}")
        self.error_code = error_code
