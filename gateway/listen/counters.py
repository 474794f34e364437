"""Figures of the client connections since the start of the node."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gateway.core.forwarding.api_counts import ApiCounts


class Refused(Enum):
    """A bound of the node that a client met, as metrics name it."""

    TOO_MANY_CLIENTS = "too_many_clients"
    CONNECTION_LIMIT = "connection_limit"  # of a rule of `limits`
    BEFORE_AUTHENTICATION = "before_authentication"  # a long request, or one before the login
    LOGIN = "login"  # that the gateway judges itself
    REQUESTS_HELD = "requests_held"  # the longest request, when all together are too many bytes
    REQUEST_STALLED = "request_stalled"  # the rest of a request never came
    ANSWERS_HELD = "answers_held"  # the longest unread answer, when all together are too many bytes
    ANSWER_STALLED = "answer_stalled"  # an answer that is not read
    NOT_KAFKA = "not_kafka"  # TLS or HTTP
    NOT_SERVED = "not_served"  # an API, or a version of one
    MALFORMED_REQUEST = "malformed_request"  # also one of more elements than it may have


@dataclass(slots=True)
class Counters:
    """Figures of a server since its start, as plain numbers."""

    connections_opened: int = 0
    connections_failed: int = 0  # ended for a fault, or no upstream
    bytes_from_clients: int = 0
    bytes_to_clients: int = 0
    apis: ApiCounts = field(default_factory=ApiCounts)
    refused: dict[Refused, int] = field(default_factory=dict)
    requests_refused: dict[tuple[int, int], int] = field(default_factory=dict)  # by API and error

    def count_refused(self, reason: Refused) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def count_request_refused(self, api_key: int, error_code: int) -> None:
        at = api_key, error_code
        self.requests_refused[at] = self.requests_refused.get(at, 0) + 1
