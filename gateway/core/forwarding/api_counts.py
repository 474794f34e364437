"""Requests of clients by Kafka API: their number, and the time to the answer of each. Bytes of
records by topic (topic_bytes.py).

The time of a request begins with its last byte, and ends with the last byte of its answer on the
way to the client. It contains the wait for earlier requests that upstream answers. A request behind
one that the gateway answers is read when that one is answered, as from a muted channel of a broker.

A fetch that finds no records waits for some, as long as its client wants: that is no work, and is
counted apart. Of the requests that wait upstream the two cannot be told apart, so all of their time
is a wait.

Plain numbers: a metric is made of them when it is asked for (gateway/listen/metrics.py).
"""

from __future__ import annotations

from typing import Final, final

from gateway.core.forwarding.topic_bytes import TopicBytes
from gateway.core.times import Times

# Upper bounds of the buckets: from a small request on loopback to a client's request.timeout.ms.
BOUNDS_MS: Final = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
WAIT_UPSTREAM: Final = frozenset({1, 11, 14})  # Fetch; JoinGroup, SyncGroup: for other members
NEVER_WAITS: Final = -1
_BOUNDS_NS: Final = [int(bound * 1_000_000) for bound in BOUNDS_MS]


@final
class ApiCounts:
    """By API key, and by topic. The keys are those that are served: a closed set."""

    def __init__(self) -> None:
        self.requests: Final[dict[int, int]] = {}
        self.times: Final[dict[int, Times]] = {}  # of the work
        self.waits: Final[dict[int, Times]] = {}
        self.throttled_ms: Final[dict[int, int]] = {}
        self.topics: Final = TopicBytes()

    def asked(self, api_key: int) -> None:
        self.requests[api_key] = self.requests.get(api_key, 0) + 1

    def answered(self, api_key: int, took_ns: int, waited_ns: int = NEVER_WAITS) -> None:
        """`waited_ns`: the part of the time in which a request that may wait did."""
        if api_key in WAIT_UPSTREAM:
            _note(self.waits, api_key, took_ns)
        elif waited_ns == NEVER_WAITS:
            _note(self.times, api_key, took_ns)
        else:
            _note(self.times, api_key, took_ns - waited_ns)
            _note(self.waits, api_key, waited_ns)

    def throttled(self, api_key: int, throttle_ms: int) -> None:
        """Upstream told the client to wait so long (ThrottleTimeMs, KIP-219)."""
        self.throttled_ms[api_key] = self.throttled_ms.get(api_key, 0) + throttle_ms


def _note(by_api: dict[int, Times], api_key: int, took_ns: int) -> None:
    times = by_api.get(api_key)
    if times is None:
        times = by_api[api_key] = Times(_BOUNDS_NS)
    times.note(took_ns)
