"""`keyway token`: a token for REST, and its entry in keyway.yaml."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gateway.admin.tokens import new_token, sha256_of
from gateway.cli.options import Output
from gateway.cli.tables import print_data
from gateway.config.admin import Role, TokenSection
from keyway.clusters.yaml_file import first_fault


def token(
    name: Annotated[str, typer.Argument(help="The token's owner; the audit names it.")],
    role: Annotated[Role, typer.Option(help="viewer reads, operator changes groups, admin all.")],
    group: Annotated[
        list[str] | None,
        typer.Option(help="Glob for groups it may see; may be repeated. Default: all."),
    ] = None,
    keys: Annotated[
        bool | None,
        typer.Option(help="May it see keys of records? Default: operator and admin may."),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="It may look at values of parked records.")
    ] = False,
    output: Output = "table",
) -> None:
    """Make a token for REST, and print its entry for `admin.tokens`. Nothing is stored."""
    made = new_token()
    entry: dict[str, Any] = {"name": name, "role": role.value, "sha256": sha256_of(made)}
    if group:
        entry["groups"] = group
    if keys is not None:
        entry["keys"] = keys
    if values:
        entry["values"] = True
    try:
        TokenSection.model_validate(entry)
    except ValidationError as error:
        raise typer.BadParameter(first_fault(error)) from error
    if output != "table":
        print_data({"token": made, "entry": entry}, output)
        return
    # JSON is YAML: the entry can be pasted as it is.
    typer.echo(f"{made}\n\nIt is not shown again. Its entry in keyway.yaml, without the token:\n")
    typer.echo(f"admin:\n  tokens:\n    - {json.dumps(entry)}")
