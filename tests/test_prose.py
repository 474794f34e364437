"""House rules of plain English, as far as they can be checked without guessing."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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
# Also inside a sentence: "it keeps what was sent". A question and a name in the code are no clause.
INNER_CLAUSE = re.compile(r"(?<![\w`={])[Ww]hat\b(?![\w`?}:=)])")
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


def prose(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each line of the docstrings and comments."""
    for first, docstring in docstrings(text):
        yield from enumerate(docstring.splitlines(), first)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def sources_with(words: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(path, text): to take apart all the others would take seconds."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if words.search(text) and path != Path(__file__):
                yield path.relative_to(ROOT).as_posix(), text


def test_a_noun_is_named_and_not_described() -> None:
    assert not [
        f"{path}:{line}: {words.strip()}"
        for path, text in sources_with(INNER_CLAUSE)
        for line, words in prose(text)
        if INNER_CLAUSE.search(words)
    ]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    assert not [
        f"{path}:{line}: {first}"
        for path, text in sources_with(CLAUSE)
        for line, first in clauses_for_nouns(text)
    ]


def test_a_clause_in_the_place_of_a_noun_is_found() -> None:
    assert clauses_for_nouns('def f():\n    """What is read next."""') == [
        (2, "What is read next.")
    ]
    assert INNER_CLAUSE.search("it keeps what was sent")
    assert not INNER_CLAUSE.search("by what? The name {what}, or `what`.")
    assert not clauses_for_nouns('def f():\n    """The next place to read."""')
