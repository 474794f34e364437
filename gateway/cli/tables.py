"""The form of all that commands print: tables, lines, JSON, YAML; once, or again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from keyway.terminal.watching import View as View
from keyway.terminal.watching import plain as plain
from keyway.terminal.watching import print_data as print_data
from keyway.terminal.watching import show as show

COLUMNS_MAX = 100_000


def table_view(raw: object, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> View:
    """An answer that is one table."""
    return View(raw, lambda: print_table(columns, rows))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """None and an empty list are shown as `-`, a list by its entries."""
    _console().print(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def print_line(text: str) -> None:
    _console().print(Text(plain(text)), soft_wrap=True)


def print_lines(text: str) -> None:
    """Somebody else's text: nothing in it but line ends may steer the terminal."""
    for line in text.splitlines():
        print_line(line)


def time_text(at_ms: int | None) -> str | None:
    """Unix time as UTC; None: not known."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(seconds: float | None) -> str | None:
    """An age in seconds as text. None: not known."""
    return None if seconds is None else f"{round(seconds, 1):g}"


def counted(number: int, noun: str) -> str:
    """A count with its noun: "1 record", "2 records"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return plain(",".join(map(str, value))) or "-"
    return plain(str(value))


def _console() -> Console:
    """A console as wide as the widest row: cut to the terminal, or to the 80 columns of a pipe,
    names could neither be read nor searched for.
    """
    return Console(width=COLUMNS_MAX)
