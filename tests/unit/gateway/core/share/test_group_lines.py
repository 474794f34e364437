"""One log line per group and kind of event in an interval."""

from __future__ import annotations

import pytest

from gateway.core.limits import GROUP_LINE_MS, GROUP_LINES_MAX
from gateway.core.share.group_lines import OTHER_GROUPS, GroupLines, Line

T = GROUP_LINE_MS


def test_the_first_is_a_line_at_once_and_the_rest_of_the_interval_one() -> None:
    lines = GroupLines()
    assert lines.note("g", "dropped", 3, {"offset": 7}, 0) == Line("g", "dropped", 3, {"offset": 7})
    assert lines.note("g", "dropped", 2, {"offset": 9}, 1) is None
    assert lines.note("g", "dropped", 5, {"offset": 11}, T - 1) is None
    assert lines.due(T - 1) == []
    assert lines.due(T) == [Line("g", "dropped", 7, {"offset": 9})]
    assert lines.due(2 * T - 1) == []


def test_the_next_interval_begins_with_the_line() -> None:
    lines = GroupLines()
    lines.note("g", "dropped", 1, {}, 0)
    lines.note("g", "dropped", 1, {"n": 1}, 1)
    assert len(lines.due(T + 500)) == 1
    assert lines.note("g", "dropped", 4, {"n": 2}, T + 501) is None
    assert lines.due(2 * T + 499) == []
    assert lines.due(2 * T + 500) == [Line("g", "dropped", 4, {"n": 2})]


def test_after_a_quiet_interval_an_event_is_a_line_at_once() -> None:
    lines = GroupLines()
    lines.note("g", "dropped", 1, {}, 0)
    assert lines.due(T) == []
    assert lines.note("g", "dropped", 2, {}, T) == Line("g", "dropped", 2, {})
    lines.note("g", "dropped", 1, {}, T + 1)
    assert [line.count for line in lines.due(2 * T)] == [1]
    assert lines.due(3 * T) == []
    assert lines.note("g", "dropped", 2, {}, 3 * T) is not None


def test_groups_and_kinds_do_not_hold_each_other_up() -> None:
    lines = GroupLines()
    for at, (group, kind) in enumerate([("g", "dropped"), ("g", "parked"), ("h", "dropped")]):
        assert lines.note(group, kind, 1, {}, at) is not None
        assert lines.note(group, kind, 10 + at, {}, at) is None
    assert [line.count for line in lines.due(T)] == [10]
    assert [(line.group, line.kind) for line in lines.due(T + 1)] == [("g", "parked")]
    assert [line.count for line in lines.due(T + 2)] == [12]


def test_at_stop_nothing_is_left_unsaid() -> None:
    lines = GroupLines()
    lines.note("g", "dropped", 1, {}, 0)
    lines.note("g", "dropped", 2, {"n": 1}, 0)
    lines.note("h", "dropped", 1, {}, 0)
    assert lines.rest() == [Line("g", "dropped", 2, {"n": 1})]
    assert lines.rest() == []
    assert lines.due(2 * T) == []


@pytest.mark.parametrize("kinds", [1, 3])
def test_many_groups_share_a_line(kinds: int) -> None:
    lines = GroupLines()
    written = [
        line
        for at in range(3 * GROUP_LINES_MAX)
        for kind in range(kinds)
        if (line := lines.note(f"g{at}", f"kind-{kind}", 1, {"group_at": at}, 0)) is not None
    ]
    assert len(written) <= GROUP_LINES_MAX + kinds
    assert sum(line.group == OTHER_GROUPS for line in written) == kinds
    summed = sum(line.count for line in [*written, *lines.due(T)])
    assert summed == 3 * GROUP_LINES_MAX * kinds, "every event is in one line"
