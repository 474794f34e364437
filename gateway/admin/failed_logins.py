"""The limit of failed logins, per address and of all addresses together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.admin.limits import (
    FAILED_ADDRESSES_MAX,
    FAILED_LOGINS_MAX,
    FAILED_LOGINS_MS,
    FAILED_LOGINS_PER_ADDRESS_MAX,
)


@dataclass(slots=True)
class _Count:
    ends_ms: int
    failed: int = 0


@dataclass(slots=True)
class FailedLogins:
    now_ms: Callable[[], int]
    _all: _Count = field(default_factory=lambda: _Count(0))
    _by_address: dict[str, _Count] = field(default_factory=dict)  # the oldest first

    def note(self, address: str) -> int:
        """Counts a failed login. Returns the seconds to wait before the next one, 0 below the
        limits.
        """
        now_ms = self.now_ms()
        if self._all.ends_ms <= now_ms:
            self._all = _Count(now_ms + FAILED_LOGINS_MS)
        known = self._by_address.get(address)
        if known is None or known.ends_ms <= now_ms:
            self._by_address.pop(address, None)
            known = self._by_address[address] = _Count(now_ms + FAILED_LOGINS_MS)
            if len(self._by_address) > FAILED_ADDRESSES_MAX:
                del self._by_address[next(iter(self._by_address))]
        self._all.failed += 1
        known.failed += 1
        waits = [
            count.ends_ms - now_ms
            for count, most in (
                (known, FAILED_LOGINS_PER_ADDRESS_MAX),
                (self._all, FAILED_LOGINS_MAX),
            )
            if count.failed > most
        ]
        return -(-max(waits, default=0) // 1_000)
