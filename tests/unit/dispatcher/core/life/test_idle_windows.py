"""Windows without members, until they leave memory."""

from __future__ import annotations

from dispatcher.core.life.idle_windows import IdleWindows

A, B = "a", "b"
IDLE_MS_MAX = 60_000


def test_a_window_leaves_after_its_time_without_members() -> None:
    there: set[str] = {B}
    idle = IdleWindows(there.__contains__, IDLE_MS_MAX)
    idle.look_at([A, B])
    assert idle.tick(1_000) == []
    assert idle.tick(1_000 + IDLE_MS_MAX - 1) == []
    assert idle.tick(1_000 + IDLE_MS_MAX) == [A]
    assert idle.tick(2_000 + IDLE_MS_MAX) == [A], "until it is closed"
    idle.forget(A)
    assert idle.tick(3_000 + IDLE_MS_MAX) == []


def test_its_time_begins_with_the_tick_that_finds_nobody() -> None:
    there: set[str] = set()
    idle = IdleWindows(there.__contains__, IDLE_MS_MAX)
    idle.look_at([A])
    assert not idle.woken(A), "no tick has come since"
    there.add(A)
    assert idle.tick(1_000) == []
    there.discard(A)
    idle.look_at([A])
    idle.tick(5_000)
    assert idle.woken(A)
    assert not idle.woken(A)
    assert idle.tick(5_000 + IDLE_MS_MAX) == []


def test_members_that_are_back_before_anything_was_told_end_it() -> None:
    there: set[str] = set()
    idle = IdleWindows(there.__contains__, IDLE_MS_MAX)
    idle.look_at([A])
    idle.tick(1_000)
    there.add(A)
    idle.look_at([A])
    assert idle.tick(1_000 + IDLE_MS_MAX) == []
    assert not idle.woken(A)


def test_the_rest_waits_for_its_own_time() -> None:
    idle: IdleWindows[str] = IdleWindows(lambda _: False, IDLE_MS_MAX)
    idle.look_at([A])
    idle.tick(1_000)
    idle.look_at([A, B])
    idle.tick(2_000)
    assert idle.tick(1_000 + IDLE_MS_MAX) == [A]
    assert idle.tick(2_000 + IDLE_MS_MAX) == [A, B]


def test_members_that_come_while_others_are_closed_keep_their_window() -> None:
    there: set[str] = set()
    idle = IdleWindows(there.__contains__, IDLE_MS_MAX)
    idle.look_at([A, B])
    idle.tick(1_000)
    assert idle.tick(1_000 + IDLE_MS_MAX) == [A, B]
    assert idle.still_idle(A)
    there.add(A)
    assert not idle.still_idle(A), "nobody was told yet"
    idle.woken(B)
    assert not idle.still_idle(B)
