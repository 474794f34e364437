"""When a topic with a refused record is tried again, and how long its reason stands."""

from __future__ import annotations

from spark.links.refusals import Refusals
from spark.streaming.limits import RETRY_REFUSED_S, RETRY_REFUSED_S_MAX

PLACE = ("orders", 1)


def test_the_reason_stands_while_it_is_tried_again_and_goes_with_the_next_record() -> None:
    refusals = Refusals()
    assert refusals.refused(PLACE, "too large", 0.0)
    assert refusals.waits("orders", RETRY_REFUSED_S - 1)
    assert not refusals.waits("orders", RETRY_REFUSED_S)
    assert refusals.reason("orders") == "too large"
    refusals.written(("orders", 0))
    assert refusals.reason("orders") == "too large", "another partition was written to"
    refusals.written(PLACE)
    assert refusals.reason("orders") == ""
    assert not refusals.waits("orders", 0.0)


def test_each_try_waits_twice_as_long_up_to_a_limit() -> None:
    refusals, waits = Refusals(), []
    for _ in range(6):
        refusals.refused(PLACE, "too large", 0.0)
        waits.append(next(s for s in range(10_000) if not refusals.waits("orders", float(s))))
    assert waits[:3] == [RETRY_REFUSED_S, 2 * RETRY_REFUSED_S, 4 * RETRY_REFUSED_S]
    assert waits[-1] == RETRY_REFUSED_S_MAX


def test_only_another_reason_is_news() -> None:
    refusals = Refusals()
    assert refusals.refused(PLACE, "too large", 0.0)
    assert not refusals.refused(PLACE, "too large", 40.0)
    assert refusals.refused(PLACE, "too old", 90.0)


def test_a_change_at_the_target_ends_the_wait() -> None:
    refusals = Refusals()
    refusals.refused(PLACE, "too large", 0.0)
    refusals.try_again("orders")
    assert not refusals.waits("orders", 1.0)
    assert refusals.reason("orders") == "too large"


def test_nothing_is_kept_of_topics_that_do_not_follow_any_more() -> None:
    refusals = Refusals()
    for name in ("orders", "gone"):
        refusals.refused((name, 0), "too large", 0.0)
    refusals.keep({"orders"})
    assert [refusals.reason(topic) for topic in ("orders", "gone")] == ["too large", ""]
    assert refusals._by_topic.keys() == {"orders"}
