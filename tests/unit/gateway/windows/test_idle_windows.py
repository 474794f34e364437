"""Windows without members, until they leave memory."""

from __future__ import annotations

from typing import cast

from gateway.windows.idle_windows import IdleWindows
from gateway.windows.limits import WINDOW_IDLE_MS_MAX
from gateway.windows.window import Window

A, B = cast("Window", "a"), cast("Window", "b")


def test_a_window_leaves_after_its_time_without_members() -> None:
    there: set[Window] = {B}
    idle = IdleWindows(there.__contains__)
    idle.look_at([A, B])
    assert list(idle.tick(1_000)) == []
    assert list(idle.tick(1_000 + WINDOW_IDLE_MS_MAX - 1)) == []
    assert list(idle.tick(1_000 + WINDOW_IDLE_MS_MAX)) == [A]
    assert list(idle.tick(2_000 + WINDOW_IDLE_MS_MAX)) == [A], "until it is closed"
    idle.forget(A)
    assert list(idle.tick(3_000 + WINDOW_IDLE_MS_MAX)) == []


def test_its_time_begins_with_the_tick_that_finds_nobody() -> None:
    there: set[Window] = set()
    idle = IdleWindows(there.__contains__)
    idle.look_at([A])
    assert not idle.woken(A), "no tick has come since"
    there.add(A)
    assert list(idle.tick(1_000)) == []
    there.discard(A)
    idle.look_at([A])
    list(idle.tick(5_000))
    assert idle.woken(A)
    assert not idle.woken(A)
    assert list(idle.tick(5_000 + WINDOW_IDLE_MS_MAX)) == []


def test_members_that_are_back_before_anything_was_told_end_it() -> None:
    there: set[Window] = set()
    idle = IdleWindows(there.__contains__)
    idle.look_at([A])
    list(idle.tick(1_000))
    there.add(A)
    idle.look_at([A])
    assert list(idle.tick(1_000 + WINDOW_IDLE_MS_MAX)) == []
    assert not idle.woken(A)


def test_the_rest_waits_for_its_own_time() -> None:
    idle = IdleWindows(lambda _: False)
    idle.look_at([A])
    list(idle.tick(1_000))
    idle.look_at([A, B])
    list(idle.tick(2_000))
    assert list(idle.tick(1_000 + WINDOW_IDLE_MS_MAX)) == [A]
    assert list(idle.tick(2_000 + WINDOW_IDLE_MS_MAX)) == [A, B]
