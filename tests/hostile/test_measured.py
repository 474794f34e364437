"""The verdict on an attack: each bar breaks, also for want of evidence."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.measured import Bars, Latency, Measured, latency, pairs

MS = 1_000_000
HELD = Measured(
    attack="any",
    did="its deeds",
    failed=False,
    seconds=6.0,
    stall=Latency(count=600, judged=600, p50=1.0, p99=5.0, longest=90.0),
    rest_stall=Latency(count=300, judged=300, p50=1.0, p99=2.0, longest=8.0),
    broker=Latency(),
    victim=Latency(count=500, judged=500, p50=3.0, p99=49.0, longest=80.0),
    rest_victim=Latency(count=300, judged=300, p50=2.0, p99=5.0, longest=9.0),
    direct=Latency(count=500, judged=500, p50=2.0, p99=4.0, longest=9.0),
    rest_direct=Latency(count=300, judged=300, p50=2.0, p99=4.0, longest=9.0),
    rss_mib=500.0,
    rest_rss_mib=80.0,
    evicted=0,
    ends=0,
    warnings=100,
    health={"up": 12},
    refused={},
    at_rest_again_s=2.0,
    unrest=[],
)


def test_all_bars_hold() -> None:
    assert HELD.broken(Bars()) == []


def test_a_broker_that_answers_late_is_not_the_node() -> None:
    late = replace(
        HELD,
        stall=Latency(600, 600, 1.0, 5.0, 2_290.0),
        victim=Latency(500, 500, 3.0, 830.0, 900.0),
        broker=Latency(600, 600, 1.0, 790.0, 2_310.0),
        direct=Latency(500, 500, 3.0, 790.0, 910.0),
    )
    assert late.broken(Bars()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failed": True}, "the attack: its deeds"),
        ({"stall": Latency(600, 600, 1.0, 5.0, 101.0)}, "stall 101 ms > 100"),
        (
            {"stall": Latency(600, 600, 1.0, 5.0, 301.0), "broker": Latency(longest=200.0)},
            "stall 101 ms > 100",
        ),
        (
            {"victim": Latency(500, 500, 3.0, 81.0, 90.0), "direct": Latency(p99=34.0)},
            "p99 10.2 x at rest > 10",
        ),
        ({"stall": Latency()}, "the probe has no answer"),
        ({"victim": Latency(500, 500, 3.0, 51.0, 80.0)}, "p99 10.2 x at rest > 10"),
        (
            {"victim": Latency(500, 49, 3.0, 4.0, 8.0)},
            "the machine stood still: too little to judge",
        ),
        (
            {"stall": Latency(500, 49, 3.0, 4.0, 8.0)},
            "the machine stood still: too little to judge",
        ),
        ({"victim": Latency(200, 200, 3.0, 4.0, 8.0)}, "the victim got 200 records, not 300"),
        (
            {"rest_stall": Latency(300, 300, 1.0, 2.0, 60.0)},
            "the machine is not quiet: 60, 5 ms at rest",
        ),
        (
            {"rest_victim": Latency(300, 300, 1.0, 60.0, 70.0)},
            "the machine is not quiet: 8, 60 ms at rest",
        ),
        ({"rss_mib": 513.0}, "RSS 513 MiB > 512"),
        ({"evicted": 1}, "1 healthy members evicted"),
        ({"ends": 1}, "the node ended 1 times, not 0"),
        ({"health": {"up": 11, "degraded": 1}}, "/health: degraded"),
        ({"health": {"up": 11, "no answer": 1}}, "/health: no answer"),
        ({"health": {}}, "/health was not asked"),
        ({"refused": {"a_metric": 0.0}}, "a_metric has not grown"),
        (
            {"unrest": ["70 % of a core"], "at_rest_again_s": 31.0},
            "not at rest 31 s after it: 70 % of a core",
        ),
    ],
)
def test_a_bar_that_does_not_hold(changes: dict[str, Any], said: str) -> None:
    assert replace(HELD, **changes).broken(Bars()) == [said]


def test_bars_of_their_own() -> None:
    longer = replace(HELD, stall=Latency(600, 600, 1.0, 5.0, 240.0))
    assert longer.broken(Bars(stall_ms_max=250.0)) == []
    assert HELD.broken(Bars(warnings_max=20)) == ["100 warnings > 20"]
    assert HELD.broken(Bars(ends=1)) == ["the node ended 0 times, not 1"]
    p99 = "p99 9.8 x at rest > 1.2"
    assert HELD.broken(Bars(p99_ratio_max=1.2)) == [p99]
    told = Bars(health=frozenset({"degraded"}))
    assert HELD.broken(told) == ["/health never said degraded"]
    assert replace(HELD, health={"up": 3, "degraded": 9}).broken(told) == []
    away = replace(HELD, stall=Latency(), victim=Latency())
    assert away.broken(Bars(serving=False)) == []


def test_a_request_that_lasts_from_before_the_span_to_behind_it_counts() -> None:
    stamped = ([0, 10 * MS, 90 * MS], [5 * MS, 100 * MS, MS])
    assert latency(stamped, (20 * MS, 50 * MS), []) == Latency(1, 1, 100.0, 100.0, 100.0)
    assert latency(stamped, (6 * MS, 8 * MS), []) == Latency()


def test_around_a_freeze_of_the_machine_nothing_is_judged_but_the_count() -> None:
    stamped = ([10 * MS, 20 * MS], [300 * MS, 2 * MS])
    assert latency(stamped, (0, 50 * MS), [(0, 30 * MS)]) == Latency(2, 0)


def test_half_a_pair_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "probe.ns"
    assert pairs(file) == (array("q"), array("q"))
    file.write_bytes(array("q", [1, 2, 3]).tobytes())
    assert pairs(file) == (array("q", [1]), array("q", [2]))
