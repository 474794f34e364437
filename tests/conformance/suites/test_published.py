from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.suites import published
from tests.conformance.suites.compared import Explained, compared
from tests.conformance.suites.front import Setting
from tests.conformance.suites.listed import suites
from tests.conformance.suites.published import PAGE, RESULTS, Cell, page, publish, read
from tests.conformance.suites.suite import Suite


def test_the_page_is_of_the_results_that_are_kept() -> None:
    assert PAGE.read_text() == page(read(RESULTS), suites({}))


def test_nothing_is_published_that_nobody_has_explained() -> None:
    assert [difference for cell in read(RESULTS) for difference in cell.unexplained] == []


def test_a_new_run_replaces_its_cell_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(published, "PAGE", tmp_path / "page.md")
    why = Explained("s", "b", "because")
    differs = compared(
        "s", {"a": "passed", "b": "passed"}, {"a": "passed", "b": "failed: x"}, [why]
    )
    alike = compared("s", {"a": "passed"}, {"a": "passed"}, [])
    one, other = Setting("4.3.1"), Setting("4.3.1", 3, tls=True)
    publish("s", one, differs, [])
    publish("s", other, alike, [])
    (first, second) = read(tmp_path / "results.json")
    assert first == Cell("s", "4.3.1", 1, False, 1, 2, 2, 0, (("b", "because"),), ())
    assert second.text() == "1 of 1, all alike"
    text = (tmp_path / "page.md").read_text()
    assert "| s | 4.3.1 | 1 of 2 (direct 2), 1 differs | — | — | 1 of 1, all alike |" in text
    assert "| s | `b` | because |" in text
    publish("s", one, alike, [])
    assert read(tmp_path / "results.json") == [replace(second, brokers=1, tls=False), second]
    assert "differs, and why" not in (tmp_path / "page.md").read_text()


def test_what_is_open_is_told_on_the_page_without_breaking_its_table() -> None:
    open_ = Cell(
        "s", "4.3.1", 1, False, 0, 1, 1, 0, (), (("a", "direct passed, through failed: x|y"),)
    )
    assert "| s | `a` | direct passed, through failed: x/y |" in page([open_], [])


def test_an_empty_cell_says_why_it_is_empty() -> None:
    ran = Cell("s", "4.3.1", 3, False, 1, 1, 1, 0, (), ())
    asked_nothing = Suite("s", None)
    assert "| s | 4.3.1 | — | — | 1 of 1, all alike | — |" in page([ran], [asked_nothing])
    plain_and_wide = Suite("s", None, speaks_tls=False, brokers=(3,))
    text = page([ran], [plain_and_wide])
    assert "| s | 4.3.1 | needs 3 | no TLS | 1 of 1, all alike | no TLS |" in text
