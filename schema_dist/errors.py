"""Failures of a registry or its log, as the retrying loops see them."""

from __future__ import annotations


class AwayError(Exception):
    """A registry or a Kafka cluster did not answer, or answered nonsense: tried again later. The
    text names it and holds no secret.
    """


class LogError(Exception):
    """A `_schemas` topic that cannot be one: it is missing, or has several partitions."""


class RefusedError(Exception):
    """A registry said no. `status`: HTTP's; `code`: the registry's own, such as 42205."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{code} {message}" if code != status else f"{status} {message}")
        self.status = status
        self.code = code
        self.message = message


class LeaseError(Exception):
    """Another process holds the lease, or it was lost. The text names the holder if it is known."""
