"""An answer that is shown again and again: a line of JSON, a document of YAML, a table for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum

import pytest
import typer
import yaml

from keyway.terminal.watching import View, show, with_seconds


def three_looks() -> Callable[[], View]:
    """Ctrl-C comes during the third."""
    looks = iter(range(2))

    def look() -> View:
        number = next(looks, None)
        if number is None:
            raise KeyboardInterrupt
        return View({"lag": number}, lambda: typer.echo(f"LAG {number}"))

    return look


@pytest.mark.parametrize(
    ("output", "read"),
    [
        ("json", lambda text: [json.loads(line) for line in text.splitlines()]),
        ("yaml", lambda text: list(yaml.safe_load_all(text))),
        (
            "table",
            lambda text: [{"lag": int(block.split()[1])} for block in text.split("\n\n") if block],
        ),
    ],
)
def test_each_look_is_shown_until_ctrl_c(
    capsys: pytest.CaptureFixture[str], output: str, read: Callable[[str], object]
) -> None:
    show(three_looks(), output, watch_s=0.0)
    assert read(capsys.readouterr().out) == [{"lag": 0}, {"lag": 1}]


def test_on_a_terminal_the_line_of_ctrl_c_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(three_looks(), "json", watch_s=0.0)
    assert capsys.readouterr().out == '{"lag": 0}\n{"lag": 1}\n\n'


def test_once_is_enough_without_watching(capsys: pytest.CaptureFixture[str]) -> None:
    look = three_looks()
    show(look, "json")
    assert json.loads(capsys.readouterr().out) == {"lag": 0}
    show(look, "table")
    assert capsys.readouterr().out == "LAG 1\n"


class Mode(StrEnum):
    EXACT = "exact"


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_read_the_same_in_each_form(
    capsys: pytest.CaptureFixture[str], output: str, read: Callable[[str], object]
) -> None:
    rows = ({"mode": Mode.EXACT, "old": None, "name": "\xfcber: #1"},)
    show(lambda: View({"rows": rows}, lambda: None), output)
    assert read(capsys.readouterr().out) == {
        "rows": [{"mode": "exact", "old": None, "name": "\xfcber: #1"}]
    }


def test_seconds_may_be_left_out() -> None:
    assert with_seconds(["a", "--watch"]) == ["a", "--watch", "2"]
    assert with_seconds(["-w", "-o", "json"]) == ["-w", "2", "-o", "json"]
    assert with_seconds(["--watch", "0.5"]) == ["--watch", "0.5"]
    assert with_seconds(["--watch=0.5"]) == ["--watch=0.5"]
