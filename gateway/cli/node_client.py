"""Questions to the REST of a running node. A refusal ends the command with the node's own words."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import typer
from pydantic import BaseModel

from gateway.cli.tables import plain

if TYPE_CHECKING:
    import httpx

ANSWER_S_MAX = 30.0
TOKEN_VARIABLE = "KEYWAY_TOKEN"  # noqa: S105 - the name of it

_token_file: ContextVar[Path | None] = ContextVar("token_file", default=None)

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


def use_token_file(path: Path | None) -> None:
    """For all questions of this command; None: the environment has the token, or there is none."""
    _token_file.set(path)


def _authorization() -> dict[str, str]:
    """Ends the command if the token cannot be read. It is in no message."""
    path = _token_file.get()
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if path is None else path.read_text("utf-8")
    except OSError as error:
        _end(f"--token-file {path}: {error.strerror}")
    except UnicodeDecodeError:
        _end(f"--token-file {path}: not UTF-8")
    token = token.strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        _end(f"{TOKEN_VARIABLE if path is None else path}: holds no token")
    return {"Authorization": f"Bearer {token}"}


def ask(
    admin: str,
    path: str,
    model: type[RowT],
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
) -> Answer[RowT]:
    """Sends the caller's token, if there is one. Ends the command if the node refuses, or if no
    node answers.
    """
    import httpx  # keeps `keyway --help` quick

    address = admin if "://" in admin else f"http://{admin}"
    try:
        response = httpx.request(
            method,
            address.rstrip("/") + path,
            json=body,
            headers=_authorization(),
            timeout=ANSWER_S_MAX,
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
