"""The schedule of the watchdog: each window when it is due, and no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.events.ticking import NEVER, NEXT_TICK
from dispatcher.store.base import WindowKey
from gateway.members.limits import TICK_MS
from gateway.windows.tick_schedule import TickSchedule
from gateway.windows.window import Window


@dataclass(frozen=True)
class Named:
    """As much of a window as the schedule sees."""

    key: WindowKey


def window(name: str, group: str = "g") -> Window:
    return cast("Window", Named(WindowKey(group, name, 0)))


A, B = window("a"), window("b")


def test_what_was_stirred_is_ticked_once() -> None:
    schedule = TickSchedule()
    schedule.stir(A)
    schedule.stir(A)
    assert schedule.take(1_000) == [A]
    schedule.rests(A, NEVER, 1_000)
    assert schedule.take(1_500) == []


def test_a_window_that_is_due_later_rests_until_then() -> None:
    schedule = TickSchedule()
    schedule.rests(A, 3_200, 1_000)
    assert schedule.take(2_999) == []
    assert schedule.take(3_000) == [A], "its slot has begun"
    schedule.rests(A, 3_200, 3_000)
    assert schedule.take(3_500) == [A]


def test_what_is_due_at_once_is_ticked_next() -> None:
    schedule = TickSchedule()
    schedule.rests(A, NEXT_TICK, 1_000)
    assert schedule.take(1_001) == [A]


def test_another_time_replaces_the_one_before() -> None:
    schedule = TickSchedule()
    schedule.rests(A, 31_000, 1_000)
    schedule.rests(A, 5_000, 1_000)
    schedule.rests(A, 9_000, 1_000)
    assert schedule.take(8_999) == []
    assert schedule.take(9_000) == [A]
    assert schedule.take(40_000) == []


def test_a_window_that_is_stirred_and_due_is_ticked_once() -> None:
    schedule = TickSchedule()
    schedule.rests(A, 2_000, 1_000)
    schedule.stir(A)
    assert schedule.take(2_000) == [A]


def test_a_closed_window_is_forgotten() -> None:
    schedule = TickSchedule()
    schedule.rests(A, 2_000, 1_000)
    schedule.stir(B)
    schedule.forget(A)
    schedule.forget(B)
    assert schedule.take(9_000) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.one_of(st.just(NEVER), st.just(NEXT_TICK), st.integers(0, 20_000)),
        ),
        max_size=30,
    )
)
def test_no_window_is_ticked_later_than_by_a_walk_of_all(moves: list[tuple[str, int]]) -> None:
    """Against a dict of the times; each tick of a window says the same time again."""
    schedule, due = TickSchedule(), dict.fromkeys("abc", NEVER)
    now_ms = 0
    for name, due_ms in moves:
        due[name] = due_ms
        schedule.stir(window(name))
        now_ms += TICK_MS
        taken = [window_.key.topic_id for window_ in schedule.take(now_ms)]
        assert len(taken) == len(set(taken))
        assert {topic for topic, at in due.items() if at <= now_ms} <= set(taken)
        assert all(topic == name or due[topic] < now_ms + TICK_MS for topic in taken)
        for topic in taken:
            schedule.rests(window(topic), due[topic], now_ms)


def test_a_group_rests_as_long_as_nothing_happens_in_its_windows() -> None:
    schedule = TickSchedule()
    schedule.stir(A)
    schedule.stir(window("x", "other"))
    assert schedule.rest_of("g") is None, "something happens"
    schedule.take(1_000)
    rest = schedule.rest_of("g")
    assert rest is not None
    schedule.rests(A, 90_000, 1_000)
    schedule.stir(window("x", "other"))
    schedule.take(1_500)
    assert schedule.rest_of("g") == rest, "not by another group, nor by time"
    schedule.stir(A)
    assert schedule.rest_of("g") is None
    schedule.take(2_000)
    assert schedule.rest_of("g") not in (rest, None)


def test_a_group_whose_windows_come_and_go_is_another() -> None:
    schedule = TickSchedule()
    nobody = schedule.rest_of("g")
    assert nobody == schedule.rest_of("g")
    schedule.stir(A)
    schedule.stir(B)
    schedule.forget(A)
    assert schedule.rest_of("g") is None, "of B"
    schedule.take(1_000)
    both = schedule.rest_of("g")
    schedule.forget(B)
    assert schedule.rest_of("g") not in (both, None)
    schedule.forget_group("g")
    assert schedule.rest_of("g") not in (nobody, both, None)
