"""House rules of plain English, as far as they can be checked without guessing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "gateway",
    "dispatcher",
    "offsets",
    "schema_dist",
    "spark",
    "clusters",
    "settled",
    "tests",
)

# A clause in the place of a noun: "What is read next", "Who may join". Name the thing instead.
CLAUSE = re.compile(r"(What|Who|Whom|Which|Whose|Whoever|Whatever)\b(?!\?)")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """(line, docstring) of the module and of everything in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring


def clauses_for_nouns(text: str) -> list[tuple[int, str]]:
    return [
        (line, first)
        for line, docstring in docstrings(text)
        if CLAUSE.match(first := docstring.splitlines()[0])
    ]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): clauses
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if (clauses := clauses_for_nouns(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_a_clause_in_the_place_of_a_noun_is_found() -> None:
    assert clauses_for_nouns('def f():\n    """What is read next."""') == [
        (2, "What is read next.")
    ]
    assert not clauses_for_nouns('def f():\n    """The next place to read."""')
