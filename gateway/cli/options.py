"""Options that commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Path of keyway.yaml; without it, the defaults."),
]
UpstreamOption = Annotated[
    str | None, typer.Option(help="The Kafka behind the gateway: host:port[,host:port].")
]
DEFAULT_ADMIN = "http://127.0.0.1:9180"
AdminOption = Annotated[str, typer.Option("--admin", help="Address of the node's REST.")]
Output = Annotated[
    Literal["table", "json"], typer.Option("-o", "--output", help="Form of the output.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only show it.")
]
