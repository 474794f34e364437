"""A rate that may be borrowed from: what was taken is paid off by time (GCRA, as one number)."""

from __future__ import annotations

from typing import Final, final

_SECOND_NS: Final = 1_000_000_000


@final
class Bucket:
    """`rate`: units a second; `burst_s`: after a pause so many seconds' worth may go at once.

    Taking is never refused: whoever asks `debt_ns` first and waits keeps the rate, however much one
    step takes.
    """

    def __init__(self, rate: int, burst_s: int) -> None:
        self.rate: Final = rate
        self.burst_ns: Final = burst_s * _SECOND_NS
        self.paid_at_ns = 0  # when all that was taken is paid off

    def take(self, amount: int, now_ns: int) -> None:
        began_ns = max(self.paid_at_ns, now_ns - self.burst_ns)
        self.paid_at_ns = began_ns - (-amount * _SECOND_NS // self.rate)  # rounded up

    def debt_ns(self, now_ns: int) -> int:
        """How long nothing more should be taken; 0: something may be taken now."""
        return max(0, self.paid_at_ns - now_ns)
