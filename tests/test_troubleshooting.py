"""Each error text of the troubleshooting page stands in the code; so does each Kafka error."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from redis.asyncio import sentinel

from gateway.core.wire.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGES = ("gateway", "dispatcher", "offsets", "schema_dist", "spark", "keyway")
FILLED = "\0"  # in place of a value


def rows() -> list[list[str]]:
    """The cells of all tables, without their heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def quoted() -> list[str]:
    """The error texts."""
    return [row[1 if len(row) == 4 else 0].strip().strip("`") for row in rows()]


def kafka_errors() -> list[str]:
    return [row[0].strip("`") for row in rows() if len(row) == 4]


def texts_of(source: str) -> set[str]:
    """All its texts but docstrings; values that are filled in are FILLED."""
    found: set[str] = set()
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                value.value if isinstance(value, ast.Constant) else FILLED for value in node.values
            ]
            found.add("".join(map(str, parts)))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            found.add(node.value)
    return found


@cache
def texts() -> frozenset[str]:
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            found |= texts_of(path.read_text(encoding="utf-8"))
    # The words of the library come through.
    found |= texts_of(Path(sentinel.__file__).read_text(encoding="utf-8"))
    return frozenset(found)


def stands(quote: str, code: str) -> bool:
    """`...` of the quote stands for anything, and so does a value that the code fills in."""
    at = 0
    for part in quote.split("..."):
        found = code.find(part.strip(), at)
        if found < 0:
            return False
        at = found + len(part.strip())
    return True


def longest(quote: str) -> str:
    return max(quote.split("..."), key=len)


@pytest.mark.parametrize("quote", quoted())
def test_an_error_text_stands_in_the_code(quote: str) -> None:
    assert len(longest(quote)) >= 4, "too little to be found"
    pieces = PIECES.get(quote, (quote,))
    missing = [piece for piece in pieces if not any(stands(piece, code) for code in texts())]
    assert not missing


# Texts that the code puts together of several.
PIECES = {
    "... clients refused: no more clients are taken: raise the limit of open files (ulimit -n),"
    " two for a client": (
        "... clients refused: ...",
        "no more clients are taken: raise the limit of open files (ulimit -n), two for a client",
    ),
    "keyway: no module ...: pip install 'keyway-gateway[distribution]'": (
        "no module ...: pip install '...[...]'",
    ),
    "state.redis_url: no redis://, rediss://, unix:// or redis+sentinel:// URL...": (
        "redis://, rediss://, unix:// or redis+sentinel://",
        "no ... URL",
    ),
    "No master found for '...'": ("No master found for ...",),
    "dead_letter needs a dead_letter_topic": ("...: dead_letter needs a dead_letter_topic",),
}


@pytest.mark.parametrize("name", sorted(set(kafka_errors())))
def test_a_kafka_error_is_one_that_the_gateway_answers(name: str) -> None:
    assert name in ErrorCode.__members__
    folders = ("handlers", "core/share", "operations")
    sources = [path for folder in folders for path in (ROOT / "gateway" / folder).glob("*.py")]
    assert any(f"ErrorCode.{name}" in path.read_text(encoding="utf-8") for path in sources)


def test_every_reason_of_bad_health_is_on_the_page() -> None:
    made = re.compile(r'Trouble\(\s*f?"([^"]+)"')
    for path in (ROOT / "gateway").rglob("*.py"):
        for words in made.findall(path.read_text(encoding="utf-8")):
            fixed = max(re.split(r"\{[^}]*\}", words), key=len).strip(" :")
            assert fixed in PAGE, f"{path}: {words}"


def test_a_text_that_the_code_does_not_have_is_found() -> None:
    assert not any(stands("the moon is away: ...", code) for code in texts())
    assert stands("broker ... does not answer", f"broker {FILLED} does not answer: {FILLED}")
    assert not stands("broker ... does not answer", "Redis does not answer")
    assert len(quoted()) > 60
