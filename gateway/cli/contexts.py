"""`keyway context`: names for nodes, so that a command for one of several nodes is short.

They are in `keyway/contexts.yaml` of the user's configuration (XDG: $XDG_CONFIG_HOME, else
~/.config): of each node the address of its REST and the file with the token. Tokens themselves are
never in it.
"""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.cli.options import NODE, Output
from gateway.cli.tables import print_data, print_table
from keyway.clusters.yaml_file import first_fault
from keyway.terminal.exits import Exit, end

CONTEXT_VARIABLE = "KEYWAY_CONTEXT"
_HOST = r"(?:[\w.-]+|\[[\da-f:.]+\])"
_URL = re.compile(rf"https?://{_HOST}(?::([0-9]{{1,5}}))?(?:/[^\s?#@]*)?", re.IGNORECASE)
_HOST_AND_PORT = re.compile(rf"{_HOST}:([0-9]{{1,5}})", re.IGNORECASE)
_PORT_MAX = 65_535

_chosen: ContextVar[str | None] = ContextVar("context", default=None)


class Context(BaseModel):
    """One node, as commands reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    admin: str
    token_file: Path | None = None
    ca_file: Path | None = None  # trusted for https; None: the system's trust store


class Contexts(BaseModel):
    """The file. `current` is used when a command names none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    current: str | None = None
    contexts: dict[str, Context] = {}


NODE_HERE = Context(admin=NODE)


def file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(home) if home.startswith("/") else Path.home() / ".config"  # as XDG has it
    return folder / "keyway" / "contexts.yaml"


def use_context(name: str | None) -> None:
    """Chooses the context for all questions of this command. None: the current one of the file, if
    there is one.
    """
    _chosen.set(name)


def context() -> Context:
    """The node of this command. Ends the command if there is no such context."""
    name = _chosen.get()
    known = _load()
    name = known.current if name is None else name
    if name is None:
        return NODE_HERE
    if name not in known.contexts:
        end(
            f"no context {name!r}: {file()} has {', '.join(sorted(known.contexts)) or 'none'}",
            Exit.CONFIGURATION,
        )
    return known.contexts[name]


def names(incomplete: str) -> list[str]:
    """The names that a shell completes. None if the file cannot be read: a command says so."""
    try:
        known = _read(file())
    except _UnreadableError:
        return []
    return [name for name in sorted(known.contexts) if name.startswith(incomplete)]


class _UnreadableError(Exception):
    """The file of contexts cannot be read; one line says why."""


def _load() -> Contexts:
    try:
        return _read(file())
    except _UnreadableError as error:
        end(str(error), Exit.CONFIGURATION)


def _read(path: Path) -> Contexts:
    """Raises _UnreadableError."""
    try:
        return Contexts.model_validate(yaml.safe_load(path.read_text("utf-8")) or {})
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise _UnreadableError(f"{path}: {error}") from error
    except ValidationError as error:
        raise _UnreadableError(f"{path}: {first_fault(error)}") from error
    except yaml.YAMLError as error:
        raise _UnreadableError(f"{path}: no YAML: {' '.join(str(error).split())}") from error


def _save(contexts: Contexts) -> None:
    path = file()
    data = contexts.model_dump(mode="json", exclude_none=True)
    written = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        written.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")
        written.replace(path)
    except OSError as error:
        end(f"{path}: {error.strerror}", Exit.CONFIGURATION)


def _address(text: str) -> str:
    """Raises BadParameter. A user and password in it would be shown: tokens have a file."""
    found = _URL.fullmatch(text) or _HOST_AND_PORT.fullmatch(text)
    if found is None or not 0 < int(found[1] or _PORT_MAX) <= _PORT_MAX:
        raise typer.BadParameter("no http(s) URL and no host:port")
    return text


app = typer.Typer(help="Names for nodes: their addresses and tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The name of the context.")]
KnownName = Annotated[str, typer.Argument(help="The name of the context.", autocompletion=names)]


@app.command("list")
def context_list(output: Output = "table") -> None:
    """List the contexts; `*` marks the one that commands use without --context."""
    known = _load()
    if output != "table":
        print_data(known.model_dump(mode="json"), output)
        return
    print_table(
        ("CURRENT", "NAME", "ADMIN", "TOKEN-FILE", "CA-FILE"),
        [
            (
                "*" if name == known.current else "",
                name,
                entry.admin,
                entry.token_file,
                entry.ca_file,
            )
            for name, entry in sorted(known.contexts.items())
        ],
    )


@app.command("set")
def context_set(
    name: Name,
    admin: Annotated[
        str, typer.Option("--admin", callback=_address, help="Address of the node's REST.")
    ] = NODE,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for it.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="PEM file that https trusts.")] = None,
) -> None:
    """Add a context, or replace it. The first one becomes the current one."""
    known = _load()
    made = Context(
        admin=admin,
        token_file=None if token_file is None else token_file.absolute(),
        ca_file=None if ca_file is None else ca_file.absolute(),
    )
    _save(
        Contexts(current=known.current or name, contexts={**known.contexts, name: made}),
    )


@app.command("use")
def context_use(name: KnownName) -> None:
    """Make a context the one that commands use without --context."""
    known = _load()
    if name not in known.contexts:
        end(f"no context {name!r}", Exit.CONFIGURATION)
    _save(known.model_copy(update={"current": name}))


@app.command("remove")
def context_remove(name: KnownName) -> None:
    """Forget a context. The file with its token stays."""
    known = _load()
    if name not in known.contexts:
        end(f"no context {name!r}", Exit.CONFIGURATION)
    rest = {key: entry for key, entry in known.contexts.items() if key != name}
    current = None if known.current == name else known.current
    _save(Contexts(current=current, contexts=rest))
