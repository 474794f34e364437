"""Wrong options of a command: one line on stderr, exit status 2."""

from __future__ import annotations

import sys

import typer
from typer.core import TyperGroup

from keyway.terminal.watching import Click, plain

UsageError: Click = typer.BadParameter.__base__  # of every wrong option or argument


class OneLineUsage(TyperGroup):
    """Commands whose wrong options are told in one line; typer has a box for them."""

    def main(self, *args: Click, standalone_mode: bool = True, **extra: Click) -> Click:
        within = extra | {"standalone_mode": False}
        if not standalone_mode:
            return super().main(*args, **within)
        try:
            sys.exit(super().main(*args, **within))
        except UsageError as error:
            line = usage_line(error)
            if line:
                typer.echo(line, err=True)
            sys.exit(error.exit_code)


def usage_line(error: Click) -> str:
    """Empty if the help has been shown instead, because nothing was given at all."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    words = plain(" ".join(error.format_message().split()))
    said = words.replace(": Value error, ", ": ").removesuffix(".")  # pydantic's words
    command = error.ctx.command_path if error.ctx else "keyway"
    return f"keyway: {said[:1].lower()}{said[1:]} (try {command} --help)"
