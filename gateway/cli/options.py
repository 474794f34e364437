"""Options that commands have in common."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

DEFAULT_ADMIN = "http://127.0.0.1:9180"
AdminOption = Annotated[str, typer.Option("--admin", help="Address of the node's REST.")]
Output = Annotated[
    Literal["table", "json"], typer.Option("-o", "--output", help="Form of the output.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only show it.")
]
