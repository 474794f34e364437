from __future__ import annotations

from gateway.core.health_lines import first_named


def test_all_are_named_where_there_is_room() -> None:
    assert first_named(["a", "b"], 2, 2, "{} more") == ["a", "b"]


def test_the_others_are_counted_and_not_asked_for() -> None:
    lines = iter(["a", "b", "c"])
    assert first_named(lines, 3, 1, "{} more") == ["a", "2 more"]
    assert next(lines) == "b", "the rest of the lines is never made"
