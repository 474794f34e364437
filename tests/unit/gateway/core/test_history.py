"""The last minutes of a group: rates, growth, the time until it has caught up."""

from __future__ import annotations

from itertools import accumulate

from gateway.core.history import LATELY, SAMPLES_MAX, Flow, History, Sample

EVERY_MS = 10_000


def history(*steps: tuple[int, int], lag: int = 0, logs: int = 4) -> History:
    """A sample every 10 s, after so many records (produced, settled) each."""
    made = History()
    produced = accumulate((step[0] for step in steps), initial=1_000)
    settled = accumulate((step[1] for step in steps), initial=0)
    for at, (end, done) in enumerate(zip(produced, settled, strict=True)):
        made.add(Sample(at * EVERY_MS, end, logs, 2 * done, done, lag + end - 1_000 - done))
    return made


def test_nothing_is_known_of_nothing() -> None:
    empty = History()
    assert (len(empty), list(empty.points()), empty.flow()) == (0, [], Flow())
    assert (empty.growing(), empty.catches_up_s()) == (False, None)
    assert empty.growth_since_it_stood() == (0, 0)
    assert history().flow() == Flow(), "one sample has no rate"


def test_rates_are_those_of_the_last_minute() -> None:
    assert history(*[(1_000, 10)] * 6, *[(100, 50)] * 6).flow() == Flow(10.0, 10.0, 5.0)


def test_points_are_of_fifteen_minutes() -> None:
    long = history(*[(20, 10)] * 500)
    points = list(long.points())
    assert len(points) == len(long) == SAMPLES_MAX
    assert points[-1].at_ms - points[0].at_ms == 14 * 60_000 + 50_000
    assert points[0].flow == Flow(), "the point before is gone"
    assert points[-1].flow == Flow(2.0, 2.0, 1.0)
    assert points[-1].lag == 5_000
    assert len(long.lately) == LATELY
    assert long.lately[-2:] == [4_970, 5_000]


def test_samples_that_come_too_soon_are_left_out() -> None:
    made = history((1, 1))
    made.add(Sample(EVERY_MS + 3_000, 9, 4, 9, 9, 9))
    assert len(made) == 2


def test_a_rate_is_unknown_rather_than_wrong() -> None:
    """Counters go back with a topic made anew, or when the group is forgotten; logs come and go."""
    made = history((50, 50))
    made.add(Sample(20_000, 5, 4, 10, 200, None))
    assert list(made.points())[-1].flow == Flow(None, None, 15.0)
    assert list(made.points())[-1].lag is None
    assert made.catches_up_s() is None
    made = history((50, 50))
    made.add(Sample(20_000, 9_000, 5, 110, 60, 4))
    assert list(made.points())[-1].flow.produced is None, "one more log"


def test_a_lag_that_grows() -> None:
    assert history(*[(100, 90)] * 12).growing()
    assert not history(*[(100, 90)] * 5).growing(), "not known yet"
    assert not history(*[(100, 100)] * 12, lag=5_000).growing()
    assert not history(*[(100, 120)] * 12, lag=5_000).growing()
    assert not history(*[(600, 0), *[(0, 120)] * 5] * 3).growing(), "it settles what comes in time"
    assert not history(*[(0, 0)] * 12, lag=5_000).growing()
    assert history(*[(100, 100)] * 12, *[(100, 0)] * 12).growing()


def test_the_time_until_it_has_caught_up() -> None:
    assert history(*[(100, 300)] * 6, lag=2_400).catches_up_s() == 1_200 / 20
    assert history(*[(100, 100)] * 6, lag=2_400).catches_up_s() is None
    assert history(*[(100, 100)] * 6).catches_up_s() is None, "there is no lag"
    assert history(*[(100, 103)] * 6, lag=100).catches_up_s() is None, "it keeps up"


def test_the_growth_since_the_last_record_was_settled() -> None:
    assert history(*[(100, 90)] * 6).growth_since_it_stood() == (0, 0)
    assert history(*[(100, 90)] * 6, *[(7, 0)] * 4).growth_since_it_stood() == (40_000, 28)
    assert history(*[(100, 90)] * 6, *[(0, 0)] * 4).growth_since_it_stood() == (40_000, 0)
