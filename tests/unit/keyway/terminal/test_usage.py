"""Wrong options are one line that names the command with help."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from keyway.terminal.usage import OneLineUsage

app = typer.Typer(name="keyway", cls=OneLineUsage, no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Has commands."""


@app.command("list")
def listed(
    name: str,
    form: Annotated[Literal["a", "b"], typer.Option()] = "a",
    every: Annotated[float, typer.Option(min=1)] = 1,
) -> None:
    if name == "none":
        raise typer.BadParameter("none\x1b: no name")
    typer.echo(f"{name} {form} {every:g}")
    raise typer.Exit(3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("lost", "no such command 'lost'. Did you mean 'list'? (try keyway --help)"),
        ("--no", "no such option: --no (try keyway --help)"),
        ("list", "missing argument 'name' (try keyway list --help)"),
        ("list x --form c", "invalid value for '--form': 'c' is not one of 'a', 'b' (try "),
        ("list x --every 0", "invalid value for '--every': "),
        ("list x --every", "option '--every' requires an argument (try keyway --help)"),
        ("list none", "invalid value: none\\x1b: no name (try keyway list --help)"),
    ],
)
def test_wrong_options_are_one_line(words: str, says: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"keyway: {says}")
    assert done.stderr.count("\n") == 1


def test_right_ones_run_and_end_as_the_command_says() -> None:
    done = CliRunner().invoke(app, ["list", "x"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, "x a 1\n", "")


def test_without_any_word_the_help_is_shown() -> None:
    done = CliRunner().invoke(app, [])
    assert (done.exit_code, done.stderr) == (2, "")
    assert "Usage: keyway" in done.stdout
