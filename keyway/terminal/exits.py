"""How a command ends: one line on stderr, and one of four exit statuses, alike for all commands."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer

from keyway.terminal.watching import plain


class Exit(IntEnum):
    DONE = 0  # or shown
    REFUSED = 1  # also: what was compared differs, something must be mended
    CONFIGURATION = 2  # wrong options, a wrong file, a missing package
    AWAY = 3  # a cluster, a registry or the node does not answer


def end(text: str, status: Exit = Exit.REFUSED) -> NoReturn:
    """Ends the command with `text`, as a rule one line."""
    typer.echo("\n".join(plain(line) for line in f"keyway: {text}".splitlines()), err=True)
    raise typer.Exit(status)
