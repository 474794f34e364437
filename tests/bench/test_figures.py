"""The bench's arithmetic, the source of wrong figures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.bench import schemas
from tests.bench.bars import BARS, Bar, judge
from tests.bench.core_cost import Drive, runs
from tests.bench.cost import CLIENT_POINTS, CORE_POINTS, UNIT, plot
from tests.bench.freezes import AFTER_NS, BEFORE_NS, Sample, freezes, undisturbed
from tests.bench.latency import added_at
from tests.bench.load import drawn
from tests.bench.profiling import costs, top_list
from tests.bench.rounds import rounds_within
from tests.bench.rows import Row, added, percentile, rows_of


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([7.0], 50, 7),
        ([7.0], 99, 7),
        ([1.0, 2.0], 50, 1),
        ([1.0, 2.0, 3.0], 50, 2),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 101)), 100, 100),
        (list(range(1, 1_001)), 99.9, 999),
        (list(range(1, 400_001)), 99.9, 399_600),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], share: float, found: float) -> None:
    assert percentile(values, share) == found


@pytest.mark.parametrize("share", [1, 50, 99, 99.9, 100])
def test_so_many_percent_do_not_exceed_it_and_fewer_are_below(share: float) -> None:
    values = sorted(random.Random(3).choices(range(300), k=777))
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= 777 * share / 100
    assert sum(value < found for value in values) < 777 * share / 100


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(AssertionError, match="of nothing"):
        percentile([], 50)


def test_ratio_is_of_medians_and_not_of_rounds() -> None:
    # The median of the ratios of the rounds would be 1.0.
    samples = {"ours": [10.0, 40.0, 30.0], "theirs": [10.0, 20.0, 60.0]}
    ours, theirs = rows_of(samples, {"ours": ("theirs",)}, unit="u")
    assert ours == Row("ours", "u", 30, 10, 40, 1.5, "theirs")
    assert theirs == Row("theirs", "u", 20, 10, 60, None, None)


def test_ratio_is_computed_before_rounding() -> None:
    (row, _) = rows_of({"a": [0.5], "b": [1.5]}, {"a": ("b",)}, unit="u", digits=0)
    assert row.ratio == 0.333


def test_median_of_an_even_number_of_rounds() -> None:
    (row,) = rows_of({"a": [1.0, 4.0, 2.0, 100.0]}, {}, unit="u", digits=1)
    assert row.median == 3.0


def test_a_case_that_was_not_run_is_no_row_and_nobody_s_opponent() -> None:
    rows = rows_of({"a": [5.0], "b": []}, {"a": ("b", "c")}, unit="u")
    assert rows == [Row("a", "u", 5, 5, 5, None, None)]


def test_several_opponents_are_several_rows() -> None:
    samples = {"a": [6.0], "b": [3.0], "c": [2.0]}
    rows = rows_of(samples, {"a": ("b", "c")}, unit="u")
    assert [(row.against, row.ratio) for row in rows[:2]] == [("b", 2.0), ("c", 3.0)]


def test_added_is_by_round() -> None:
    assert added([5.0, 9.0], [4.0, 10.0]) == [1.0, -1.0]
    with pytest.raises(ValueError, match="shorter"):
        added([5.0, 9.0], [4.0])


RATE = Bar("a", "u", at_least=10)
MEMORY = Bar("a", "u", below=10)
RATIO = Bar("a", "u", at_least=2, against="b")


@pytest.mark.parametrize(
    ("bar", "median", "ratio", "word"),
    [
        (RATE, 10, None, "met"),
        (RATE, 9.99, None, "missed"),
        (MEMORY, 9.99, None, "met"),
        (MEMORY, 10, None, "missed"),
        (RATIO, 1, 2.0, "met"),
        (RATIO, 1_000, 1.999, "missed"),
    ],
)
def test_bars(bar: Bar, median: float, ratio: float | None, word: str) -> None:
    row = Row("a", "u", median, median, median, ratio, "b" if ratio else None)
    (verdict,) = judge([row], [bar])
    assert verdict.word == word


def test_what_was_not_measured_is_not_met() -> None:
    alone = Row("a", "u", 50, 50, 50, None, None)  # its opponent did not run
    other_unit = Row("a", "s", 1, 1, 1, None, None)
    assert [verdict.word for verdict in judge([alone], [RATIO])] == ["not measured"]
    assert [verdict.word for verdict in judge([other_unit], [MEMORY])] == ["not measured"]
    assert {verdict.word for verdict in judge([])} == {"not measured"}


def test_another_rate_is_not_judged_by_the_bar_of_latency() -> None:
    def verdicts(per_second: int) -> list[str]:
        row = Row(f"{added_at(per_second)}: p99", "ms", 1, 1, 1, None, None)
        return [verdict.word for verdict in judge([row], BARS) if "latency" in verdict.bar.row]

    assert verdicts(50_000) == ["met"]
    assert verdicts(5_000) == ["not measured"]


@pytest.mark.parametrize(
    ("lengths", "seconds_max", "done"),
    [
        ([10, 10, 10], 100, 3),
        ([10, 10, 10], 30, 3),
        ([10, 10, 10], 29, 2),
        ([10, 10, 10], 5, 1),  # the first always
        ([5, 20, 5], 44, 2),  # the third may take as long as the second
        ([], 5, 0),
    ],
)
def test_no_round_starts_that_would_end_too_late(
    lengths: list[float], seconds_max: float, done: int
) -> None:
    clock = [1_000.0]
    seen = []
    for at in rounds_within(len(lengths), seconds_max, lambda: clock[0]):
        seen.append(at)
        clock[0] += lengths[at]
    assert seen == list(range(done))


def test_runs_are_the_ranges_of_offsets() -> None:
    assert list(runs([3])) == [(3, 3)]
    assert list(runs([1, 2, 3, 7, 9, 10])) == [(1, 3), (7, 7), (9, 10)]


@pytest.mark.parametrize(("keys", "members"), [(10, 30), (500, 3), (100_000, 1)])
def test_the_core_s_drive_settles_every_record_once(keys: int, members: int) -> None:
    drive = Drive(keys, members, 5_000, seed=1)
    assert drive.run() > 0
    assert drive.settled == 5_000
    assert drive.cursor == 5_000


def test_keys_are_drawn_alike_each_time() -> None:
    assert list(drawn(50, 10)) == list(drawn(50, 10))
    assert len({key for key, _ in drawn(1_000, 10)}) == 10


def test_a_function_counts_once_per_stack_and_by_itself_where_it_ends() -> None:
    waiting = ["loop (a.py:7);uv__io_poll (linux.c:1);epoll_pwait (libc.so.6) 50"]
    stacks = ["main (a.py:1);f (a.py:2);f (a.py:3) 3", "main (a.py:9);g (a.py:4) 1", *waiting]
    alone, whole = costs(stacks)
    assert alone == {"f (a.py)": 3, "g (a.py)": 1}
    assert whole == {"main (a.py)": 4, "f (a.py)": 3, "g (a.py)": 1}
    listed = top_list(stacks, "title")
    assert "  75.0 %  f (a.py)" in listed
    assert "main" not in listed, "the way in"


def test_the_plot_is_drawn_of_what_there_is(tmp_path: Path) -> None:
    picture = tmp_path / "plot.png"
    assert not plot([], picture)
    core = [Row(f"cost of the core: {p}", UNIT, 1, 1, 1, None, None) for p in CORE_POINTS]
    clients = [Row(f"cost with clients: {p}", UNIT, 5, 5, 5, None, None) for p in CLIENT_POINTS]
    for rows in (core, clients, core + clients):
        assert plot(rows, picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()


def test_a_freeze_is_stolen_time_and_ends_when_it_is_told() -> None:
    stolen = [(0, 1.0), (10, 1.01), (20, 1.03), (30, 1.125), (40, 1.125), (150, 1.155)]
    samples = [Sample(at_ms * 1_000_000, at_s) for at_ms, at_s in stolen]
    (first, last), second = freezes(samples)
    assert first == pytest.approx(-65e6)
    assert last == 30e6
    assert second == pytest.approx((120e6, 150e6))


def test_what_was_produced_around_a_freeze_is_not_judged() -> None:
    start, end = 10_000_000_000, 10_100_000_000
    first, last = start - BEFORE_NS, end + AFTER_NS
    stamps = [first - 1, first, start, end, last, last + 1]
    assert undisturbed(stamps, [1, 2, 3, 4, 5, 6], [(start, end)]) == [1, 6]
    assert undisturbed(stamps, [1, 2, 3, 4, 5, 6], []) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("first_s", "more_s", "last_mib", "words"),
    [
        (100.0, 5.0, 105.0, ["met", "met", "met"]),
        (120.0, 12.0, 110.0, ["missed", "missed", "missed"]),
    ],
)
def test_bars_of_schemas(
    monkeypatch: pytest.MonkeyPatch,
    first_s: float,
    more_s: float,
    last_mib: float,
    words: list[str],
) -> None:
    figures = schemas.Figures(30_000, first_s, (more_s,) * 5, 60.0, 100.0, last_mib)
    monkeypatch.setattr(schemas, "measure", lambda _kafka: figures)
    rows = schemas.schemas("", iter([0, 1]))
    bars = [bar for bar in BARS if bar.row.startswith("schemas:")]
    assert [verdict.word for verdict in judge(rows, bars)] == words
