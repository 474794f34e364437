"""The form of everything that commands print: tables, lines, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

COLUMNS_MAX = 100_000


def print_json(answer: object) -> None:
    typer.echo(json.dumps(answer, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """None is shown as `-`, a list by its entries."""
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    _console().print(table)


def print_line(text: str) -> None:
    _console().print(Text(plain(text)), soft_wrap=True)


def plain(text: str) -> str:
    """Control characters as escapes: clients choose names, which may hold any."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def age(seconds: float | None) -> str | None:
    """In seconds; None: not known."""
    return None if seconds is None else f"{round(seconds, 1):g}"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return plain(",".join(map(str, value)))
    return plain(str(value))


def _console() -> Console:
    """As wide as its widest row: cut to the terminal, or to the 80 columns of a pipe, names could
    neither be read nor searched for.
    """
    return Console(width=COLUMNS_MAX)
