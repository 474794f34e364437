"""A rate holds in the long run, whatever one step takes."""

from __future__ import annotations

from random import Random

from gateway.core.client_limits.bucket import Bucket

S_NS = 1_000_000_000


def test_a_burst_goes_at_once_and_the_rest_waits() -> None:
    bucket = Bucket(rate=10, burst_s=1)
    now_ns = 100 * S_NS
    for _ in range(10):
        assert bucket.debt_ns(now_ns) == 0
        bucket.take(1, now_ns)
    assert bucket.debt_ns(now_ns) == 0, "the burst is used up, and nothing is owed"
    bucket.take(5, now_ns)
    assert bucket.debt_ns(now_ns) == S_NS // 2
    assert bucket.debt_ns(now_ns + S_NS // 2) == 0


def test_who_waits_for_its_debts_keeps_the_rate() -> None:
    chosen, bucket = Random(7), Bucket(rate=1_000, burst_s=2)
    began_ns = now_ns = 50 * S_NS
    taken = largest = 0
    for _ in range(2_000):
        now_ns += bucket.debt_ns(now_ns) + chosen.choice((0, 0, S_NS // 7))
        amount = chosen.choice((1, 30, 5_000))
        bucket.take(amount, now_ns)
        taken, largest = taken + amount, max(largest, amount)
        assert (taken - largest - 2_000) * S_NS <= 1_000 * (now_ns - began_ns)
