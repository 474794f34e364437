"""Bytes by topic: bounded, never falling, of the busiest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.busiest_topics import OTHER, BusiestTopics


def test_the_first_topics_are_shown_from_their_first_ranking_on() -> None:
    topics = BusiestTopics(2, 10)
    topics.count("a", 5)
    assert topics.rows() == [(OTHER, 5)]
    topics.rank()
    topics.count("a", 7)
    assert topics.rows() == [("a", 7), (OTHER, 5)]


def test_a_busier_topic_takes_the_place_of_the_least_busy() -> None:
    topics = BusiestTopics(2, 10)
    for name in ("a", "b"):
        topics.count(name, 10)
    topics.rank()
    topics.count("a", 10)
    topics.count("b", 100)
    topics.count("c", 19)
    topics.rank()
    assert [name for name, _ in topics.rows()] == ["a", "b", OTHER], "not twice as busy"
    topics.count("a", 10)
    topics.count("b", 100)
    topics.count("c", 20)
    topics.rank()
    topics.count("c", 1)
    topics.count("a", 3)
    assert topics.rows() == [("b", 200), ("c", 1), (OTHER, 20 + 19 + 20 + 3)]


def test_a_quiet_time_changes_nothing() -> None:
    topics = BusiestTopics(1, 10)
    topics.count("a", 1)
    topics.rank()
    topics.rank()
    assert topics.rows() == [("a", 0), (OTHER, 1)]


def test_a_topic_of_the_name_of_all_others_is_one_of_them() -> None:
    topics = BusiestTopics(2, 10)
    topics.count(OTHER, 5)
    topics.rank()
    topics.count(OTHER, 5)
    assert topics.rows() == [(OTHER, 10)]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 1_000)) | st.none(), max_size=60
    ),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_counters_never_fall_and_are_bounded(
    events: list[tuple[str, int] | None], shown_max: int, watched_max: int
) -> None:
    """None: a ranking."""
    topics = BusiestTopics(shown_max, watched_max)
    before: dict[str, int] = {}
    for event in events:
        if event is None:
            topics.rank()
            before = {name: before.get(name, 0) for name, _ in topics.rows() if name in before}
        else:
            total = sum(size for _, size in topics.rows())
            topics.count(*event)
            assert sum(size for _, size in topics.rows()) == total + event[1]
        now = dict(topics.rows())
        assert len(now) <= shown_max + 1
        for name, size in before.items():
            assert now[name] >= size or now[name] == 0, "it has left and come back: a new counter"
        before = now
