"""Failures of the upstream, made at the border only (sockets, timers, codec)."""

from __future__ import annotations

from gateway.core.wire.errors import error_name


class UpstreamError(Exception):
    """The upstream did not carry out a request; asking again may help."""


class Unreachable(UpstreamError):
    """No connection, or it broke, or its bytes were not Kafka."""


class TimedOut(UpstreamError):
    """No answer in time. The upstream may have carried out the request, or not."""


class Refused(UpstreamError):
    """The upstream answered with a Kafka error code."""

    def __init__(self, error_code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(error_code)}")
        self.error_code = error_code
