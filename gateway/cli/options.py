"""Options that commands have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Path of keyway.yaml; without it, the defaults."),
]
UpstreamOption = Annotated[
    str | None, typer.Option(help="The Kafka behind the gateway: host:port[,host:port].")
]
Click = Any  # typer keeps its own copy of click private
NODE = "http://127.0.0.1:9180"
DEFAULT_ADMIN = ""  # that of the context, or else NODE
AdminOption = Annotated[
    str,
    typer.Option(
        "--admin", help="Address of the node's REST.", show_default=f"the context's, or {NODE}"
    ),
]
Output = Annotated[
    Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="Form of the output.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only show it.")
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
        help=f"Show it again and again, every {WATCH_S:g} seconds or so many, until Ctrl-C.",
    ),
]
NameFilter = Annotated[str | None, typer.Option("--name", help="Only names that hold this.")]


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
