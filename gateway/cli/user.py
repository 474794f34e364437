"""`keyway user`: the entry of a client that the gateway authenticates, with hashed secrets."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Annotated

import typer

from gateway.core.identity.credentials import HASHES, derived
from gateway.core.identity.limits import ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES

_PASSWORD_CHARS_MAX = 1_024
_KEY_BYTES = 32


def user(
    name: Annotated[str, typer.Argument(help="The name that the client logs in with.")],
    iterations: Annotated[
        int,
        typer.Option(
            min=ITERATIONS_MIN,
            max=ITERATIONS_MAX,
            help="Iterations of the hash; more make guessing slower, and logins with PLAIN, too.",
        ),
    ] = 8_192,
    new: Annotated[
        bool, typer.Option("--new", help="Print a whole file, with its first lines.")
    ] = False,
) -> None:
    """Hash a client's password, and print its entry for a `users_file`. Nothing is stored. The
    password is read from the terminal, or else from the first line of the input.
    """
    if not name or "\0" in name:
        raise typer.BadParameter("a name is needed")
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not 0 < len(password) <= _PASSWORD_CHARS_MAX or "\0" in password:
        raise typer.BadParameter(f"a password of 1 to {_PASSWORD_CHARS_MAX:,} characters is needed")
    if new:
        # Unknown names get salts that are made with it: the same on all nodes, at all times.
        typer.echo(f"key: {secrets.token_hex(_KEY_BYTES)}\nusers:")
    typer.echo(f"  {json.dumps(name)}:")  # JSON is YAML
    for mechanism, hash_name in HASHES.items():
        salt = secrets.token_bytes(SALT_BYTES)
        made = derived(hash_name, password.encode(), salt, iterations)
        typer.echo(f"    {mechanism}: {made.text()}")
