"""Documents as stories: the programs, configuration and commands of a page, in their order.

A fenced block of `console` holds commands (`$ ...`) and the output of each. A block of `python`,
`java`, `yaml` or `properties` whose first line names a file (`# consumer.py`) is that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_TITLE = re.compile(r"(?:#|//) (\w[\w.-]*\.(?:py|java|yaml|properties))\n")
_ID = re.compile(r"(?<![\w+/-])[\w+/-]{22}(?![\w+/-])")  # a Kafka Uuid: 16 bytes in base64
_LIBRDKAFKA_LOG = re.compile(r"^%\d\|.*\n", re.M)
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class File:
    """A program or a configuration that the page shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command line and the output shown for it; `...` in the output stands for anything."""

    line: str
    output: str


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text."""
    for language, body in _FENCE.findall(text):
        yield Block(language, body)


def steps(text: str) -> list[File | Command]:
    """Files and commands in the order of the page."""
    found: list[File | Command] = []
    for block in blocks(text):
        if block.language == "console":
            found += _commands(block.text)
        elif title := _TITLE.match(block.text):
            found.append(File(title.group(1), block.text))
    return found


def _commands(text: str) -> Iterator[Command]:
    joined = text.replace("\\\n", "")
    assert joined.startswith(_PROMPT), f"a block of commands begins with one: {text[:60]!r}"
    for part in re.split(r"^\$ ", joined, flags=re.M)[1:]:
        line, _, output = part.partition("\n")
        yield Command(re.sub(r" +", " ", line), output)


def normal(output: str) -> str:
    """The output without the parts that differ from run to run: ids, versions, librdkafka's log."""
    output = _LIBRDKAFKA_LOG.sub("", output)
    output = _ID.sub("MEMBER-ID", output)
    output = re.sub(r"\bPython 3\.\d+\.\d+", "Python 3", output)
    return re.sub(r"\b(compiled|interpreted \([^)]*\))", "BUILD", output)


def same(shown: str, printed: str) -> bool:
    """True if the output is the one of the page, the width of columns aside."""
    checker = OutputChecker()
    return checker.check_output(normal(shown), normal(printed), ELLIPSIS | NORMALIZE_WHITESPACE)


def same_lines(shown: str, printed: str) -> bool:
    """As `same`, or with the lines in another order: a consumer gets keys in any order."""
    return same(shown, printed) or same(_sorted(shown), _sorted(printed))


def _sorted(output: str) -> str:
    return "\n".join(sorted(" ".join(line.split()) for line in normal(output).splitlines()))
