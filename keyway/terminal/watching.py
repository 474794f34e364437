"""An answer that a command shows once, or again and again with --watch: tables, JSON or YAML."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
import yaml
from rich.console import Console
from typer.core import TyperCommand

Click = Any  # typer keeps its own copy of click private
Output = Annotated[
    Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="Form of the output.")
]
WATCH_S = 2.0
WATCH_S_MIN = 0.1
WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        "-w",
        min=WATCH_S_MIN,
        metavar="[SECONDS]",
        help=f"Repeat the answer until Ctrl-C, every {WATCH_S:g} seconds or as many as given.",
    ),
]


class Watching(TyperCommand):
    """A command whose --watch may stand without its seconds."""

    def parse_args(self, ctx: Click, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    for at, argument in enumerate(arguments):
        found.append(argument)
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        if argument in ("--watch", "-w") and not _is_number(following):
            found.append(f"{WATCH_S:g}")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class View:
    """An answer: as data, and as it is printed for people."""

    raw: object
    tables: Callable[[], None]


def show(look: Callable[[], View], output: str, watch_s: float | None = None) -> None:
    """`look` asks. With `watch_s` again after so many seconds, until Ctrl-C, which is a good end.
    JSON is then one line for each look, YAML a document.
    """
    if watch_s is None:
        _show_once(look(), output)
        return
    try:
        while True:
            view = look()
            if output == "json":
                typer.echo(json.dumps(view.raw))
            elif output == "yaml":
                typer.echo("---")
                print_data(view.raw, output)
            else:
                Console().clear()  # of a terminal; elsewhere nothing happens
                view.tables()
                typer.echo("")
            time.sleep(watch_s)
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            typer.echo("")  # behind the ^C that a terminal shows


def plain(text: str) -> str:
    """Control characters as escapes: clients choose names, which may hold any."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _show_once(view: View, output: str) -> None:
    if output == "table":
        view.tables()
    else:
        print_data(view.raw, output)


def print_data(answer: object, output: str) -> None:
    """`output`: json or yaml."""
    text = json.dumps(answer, indent=2)
    if output == "yaml":
        plain = json.loads(text)  # PyYAML writes no subclass of str or int, such as an enum
        typer.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(text)
