"""The clients that share the limits of one rule: their connections, and what they have used.

A request waits until the account has paid for what was taken before it (KIP-219's muting: the
requests behind it on its connection wait as well). Then it passes whole, however large it is, and
its answer names the wait of the next one. So the rate holds in the long run, whether a client obeys
throttle_time_ms or not, and also if it connects anew.

Bytes of group coordination count, but are never held back for bytes: a consumer that may not fetch
yet would lose its membership.
"""

from __future__ import annotations

from typing import Final, final

from gateway.core.client_limits.bucket import Bucket

# ApiVersions, SaslHandshake, SaslAuthenticate: before them nobody is known.
_FREE: Final = frozenset({17, 18, 36})
# FindCoordinator, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, OffsetCommit; ConsumerGroup-,
# ShareGroup-, StreamsGroupHeartbeat.
_NO_BYTES: Final = frozenset({8, 10, 11, 12, 13, 14, 68, 76, 88})
_MS_NS: Final = 1_000_000


@final
class Account:
    """`who`: the principal, client id or address that the account is for; empty: all of its rule.
    Buckets are None without a limit.
    """

    def __init__(
        self,
        rule: str,
        who: str,
        requests: Bucket | None,
        bytes_in: Bucket | None,
        bytes_out: Bucket | None,
    ) -> None:
        self.rule: Final = rule
        self.who: Final = who
        self.connections: Final[set[int]] = set()
        self.refused = 0  # connections and share sessions
        self.refusing = False  # since the last connection that was taken
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.throttled_ms = 0  # told to clients
        self.muted = 0  # times that a request had to wait
        self._requests = requests
        self._bytes_in = bytes_in
        self._bytes_out = bytes_out

    def limit_again(
        self, requests: Bucket | None, bytes_in: Bucket | None, bytes_out: Bucket | None
    ) -> None:
        """Other limits; what was taken stays taken."""
        for old, new in (
            (self._requests, requests),
            (self._bytes_in, bytes_in),
            (self._bytes_out, bytes_out),
        ):
            if old is not None and new is not None:
                new.paid_at_ns = old.paid_at_ns
        self._requests, self._bytes_in, self._bytes_out = requests, bytes_in, bytes_out

    def add(self, other: Account) -> None:
        """The figures of an account that is given up."""
        self.refused += other.refused
        self.requests += other.requests
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.throttled_ms += other.throttled_ms
        self.muted += other.muted

    def wait_ns(self, api_key: int, now_ns: int) -> int:
        """How long a request has to wait before it may pass."""
        if api_key in _FREE:
            return 0
        wait_ns = 0 if self._requests is None else self._requests.debt_ns(now_ns)
        if api_key not in _NO_BYTES:
            if self._bytes_in is not None:
                wait_ns = max(wait_ns, self._bytes_in.debt_ns(now_ns))
            if self._bytes_out is not None:
                wait_ns = max(wait_ns, self._bytes_out.debt_ns(now_ns))
        return wait_ns

    def asked(self, api_key: int, size: int, now_ns: int) -> None:
        """A request of `size` bytes passes."""
        self.requests += 1
        self.bytes_in += size
        if api_key in _FREE:
            return
        if self._requests is not None:
            self._requests.take(1, now_ns)
        if self._bytes_in is not None:
            self._bytes_in.take(size, now_ns)

    def answered(self, api_key: int, size: int, now_ns: int) -> int:
        """A response of `size` bytes leaves; the throttle_time_ms that it should tell."""
        self.bytes_out += size
        if api_key in _FREE:
            return 0
        if self._bytes_out is not None:
            self._bytes_out.take(size, now_ns)
        throttle_ms = -(-self.wait_ns(api_key, now_ns) // _MS_NS)
        self.throttled_ms += throttle_ms
        return throttle_ms

    def debt_ms(self, now_ns: int) -> int:
        """How long a Fetch or Produce that came now would wait."""
        return -(-self.wait_ns(0, now_ns) // _MS_NS)

    def waits_for(self, now_ns: int) -> list[str]:
        """The limits that it would wait for, as keyway.yaml names them."""
        named = (
            ("requests_per_s", self._requests),
            ("bytes_in_per_s", self._bytes_in),
            ("bytes_out_per_s", self._bytes_out),
        )
        return [name for name, bucket in named if bucket is not None and bucket.debt_ns(now_ns)]
