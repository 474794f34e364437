"""Fetches that wait: woken, and known to the watchdog."""

from __future__ import annotations

from gateway.windows.ready_signals import ReadySignals


def test_each_fetch_has_its_own_signal() -> None:
    ready = ReadySignals()
    with (
        ready.watch("g", "m1", 1) as one,
        ready.watch("g", "m1", 2) as two,
        ready.watch("g", "m2", 1) as other,
    ):
        ready.wake("g", ["m1"])
        assert (one.is_set(), two.is_set(), other.is_set()) == (True, True, False)
    assert len(ready) == 0


def test_members_wait_at_a_broker_until_their_last_fetch_ends() -> None:
    ready = ReadySignals()
    with ready.watch("g", "m1", 1):
        with ready.watch("g", "m1", 1), ready.watch("g", "m2", 1), ready.watch("h", "m3", 1):
            assert ready.waiting("g", 1) == {"m1", "m2"}
            assert ready.waiting("g", 2) == frozenset()
        assert ready.waiting("g", 1) == {"m1"}
    assert ready.waiting("g", 1) == frozenset()


def test_fetches_from_brokers_with_another_owner_look_again_and_no_others() -> None:
    ready = ReadySignals()
    with ready.watch("g", "m1", 1) as one, ready.watch("g", "m1", 2) as two:
        with ready.watch("h", "m2", 1) as other:
            assert ready.wake_at({1, 3}) == 2
            assert (one.is_set(), two.is_set(), other.is_set()) == (True, False, True)
        assert ready.wake_at({1}) == 1
    assert ready.wake_at({1, 2}) == 0
