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
# Also inside a sentence: "it keeps what was sent", "it says which is late". No such clause are a
# question, a name in the code, "a client who waits", and "it stays, whoever asks".
INNER_CLAUSE = re.compile(
    r"(?<![\w`={])[Ww]hat\b(?![\w`?}:=)])"
    r"|(?<!, )\b[Ww]hoever\b"
    r"|\b(?:asks?|decides?|knows?|says?|shows?|tells?) (?:who|whose|which)\b"
    r"|(?:\bfor|\bof|[:;]) who\b(?! *[:=?])"
)
# The prose of a page of Markdown, and of a file that has its prose in comments.
PAGES = ("*.md", "docs/*.md")
COMMENTED = {
    "Makefile": re.compile(r"#+ (.*)"),
    "gateway/admin/dashboard/static/*.js": re.compile(r"(?://|/\*\*|^ *\*) (.*)"),
}
QUOTED = re.compile(r'`[^`]*`|"[^"]*"')
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


def page_prose(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each line outside of blocks of code, without the quoted words."""
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif not in_block:
            yield number, QUOTED.sub("", line)


def comments(text: str, comment: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := comment.search(line):
            yield number, QUOTED.sub("", found[1])


def occurs(words: re.Pattern[str], text: str) -> bool:
    """Looks at lines with a "wh" only: over all of the text the pattern takes seconds."""
    return any(words.search(line) for line in text.splitlines() if "wh" in line or "Wh" in line)


def sources_with(words: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(path, text): to take apart all the others would take seconds."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if occurs(words, text) and path != Path(__file__):
                yield path.relative_to(ROOT).as_posix(), text


def test_a_noun_is_named_and_not_described() -> None:
    assert not [
        f"{path}:{line}: {words.strip()}"
        for path, text in sources_with(INNER_CLAUSE)
        for line, words in prose(text)
        if INNER_CLAUSE.search(words)
    ]


def test_pages_name_a_noun() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {words.strip()}"
        for pattern in PAGES
        for path in sorted(ROOT.glob(pattern))
        for line, words in page_prose(path.read_text(encoding="utf-8"))
        if INNER_CLAUSE.search(words)
    ]


def test_comments_of_other_files_name_a_noun() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {words.strip()}"
        for pattern, comment in COMMENTED.items()
        for path in sorted(ROOT.glob(pattern))
        for line, words in comments(path.read_text(encoding="utf-8"), comment)
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
    for clause in ("it says which is late", "for who may see keys", "and whoever asks is told"):
        assert INNER_CLAUSE.search(clause), clause
    for noun in ("a client who waits", "it stays, whoever asks", "the topic which was made"):
        assert not INNER_CLAUSE.search(noun), noun
    assert not clauses_for_nouns('def f():\n    """The next place to read."""')


def test_only_the_prose_of_a_page_is_looked_at() -> None:
    page = 'See "what"\n```console\n$ what now\n```\nand `what` follows'
    assert list(page_prose(page)) == [(1, "See "), (5, "and  follows")]
    found = comments("run: make # how it runs\n\t@make", COMMENTED["Makefile"])
    assert list(found) == [(1, "how it runs")]
