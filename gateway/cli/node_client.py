"""Questions to the REST of a running node. A refusal ends the command with the node's own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import typer
from pydantic import BaseModel

from gateway.cli.tables import plain

if TYPE_CHECKING:
    import httpx

ANSWER_S_MAX = 30.0

RowT = TypeVar("RowT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answer(Generic[RowT]):
    """`raw`: the JSON as it came, for `-o json`."""

    raw: Any
    row: RowT


def group_path(group: str) -> str:
    name = quote(group, safe="")
    if set(name) == {"."}:  # "." and ".." would mean folders
        name = "%2E" * len(name)
    return f"/v1/groups/{name}"


def path_with(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}"


def ask(
    admin: str,
    path: str,
    model: type[RowT],
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
) -> Answer[RowT]:
    """Ends the command if the node refuses, or if no node answers."""
    import httpx  # keeps `keyway --help` quick

    address = admin if "://" in admin else f"http://{admin}"
    try:
        response = httpx.request(
            method, address.rstrip("/") + path, json=body, timeout=ANSWER_S_MAX
        )
        if response.is_success:
            raw = response.json()
            return Answer(raw, model.model_validate(raw))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, UnicodeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        _end(f"no node answers at {admin}: {reason}")
    _end(_title(response))


def _title(response: httpx.Response) -> str:
    try:
        return str(response.json()["title"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}"  # not a node of ours


def _end(line: str) -> NoReturn:
    typer.echo(f"keyway: {plain(line)}", err=True)
    raise typer.Exit(1)
