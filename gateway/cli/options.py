"""Options that commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyway.terminal.watching import Output as Output
from keyway.terminal.watching import Watching as Watching
from keyway.terminal.watching import WatchOption as WatchOption

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Path of keyway.yaml; without it, the defaults."),
]
UpstreamOption = Annotated[
    str | None, typer.Option(help="The Kafka behind the gateway: host:port[,host:port].")
]
NODE = "http://127.0.0.1:9180"
DEFAULT_ADMIN = ""  # that of the context, or else NODE
AdminOption = Annotated[
    str,
    typer.Option(
        "--admin", help="Address of the node's REST.", show_default=f"the context's, or {NODE}"
    ),
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only show it.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only this topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only partitions with this number.")
]
NameFilter = Annotated[
    str | None, typer.Option("--name", help="Only names that contain this text.")
]


def partition_text(partition: int | None) -> str | None:
    """The partition as a parameter of REST."""
    return None if partition is None else str(partition)
