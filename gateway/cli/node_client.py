"""Questions to the REST of a running node. A refusal ends the command with the node's own words."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import typer
from pydantic import BaseModel

from gateway.admin.limits import PAGE_ROWS_MAX
from gateway.cli.contexts import context
from gateway.cli.tables import View, show, table_view
from keyway.terminal.exits import Exit, end

if TYPE_CHECKING:
    import ssl

    import httpx

ANSWER_S_MAX = 30.0
TOKEN_VARIABLE = "KEYWAY_TOKEN"  # noqa: S105 - the name of it

_admin: ContextVar[str] = ContextVar("admin", default="")
_ca_file: ContextVar[Path | None] = ContextVar("ca_file", default=None)
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
    return f"{path}?{urlencode(parameters)}" if parameters else path


@dataclass(frozen=True, slots=True)
class Pages(Generic[RowT]):
    """A list that came in pages: the JSON as of one page, and the rows of all."""

    raw: dict[str, Any]
    rows: list[RowT]


def ask_all(
    admin: str,
    path: str,
    model: type[BaseModel],
    field: str,
    first: int | None = None,
    /,
    **parameters: str | None,
) -> Pages[Any]:
    """Asks for all pages of a list, or for as many as hold its `first` rows. `field`: where the
    model has the rows. Parameters that are None are left out.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    if first is not None:
        given["limit"] = str(min(first, PAGE_ROWS_MAX))
    answer = ask(admin, path_with(path, **given), model)
    raw, rows = answer.raw, list(getattr(answer.row, field))
    while (after := getattr(answer.row, "next", None)) is not None:
        if first is not None and len(rows) >= first:
            break
        answer = ask(admin, path_with(path, **given, after=after), model)
        raw[field] += answer.raw[field]
        if "unanswered" in answer.raw:
            raw["unanswered"] = answer.raw["unanswered"]
        rows += getattr(answer.row, field)
    raw.pop("next", None)
    raw[field] = raw[field][:first]
    return Pages(raw, rows[:first])


def show_list(
    pages: Callable[[], Pages[Any]],
    columns: Sequence[str],
    cells: Callable[[Any], Sequence[object]],
    output: str,
    watch: float | None,
) -> None:
    """Shows a list of the node as one table. `cells`: the cells of one row."""

    def look() -> View:
        found = pages()
        return table_view(found.raw, columns, [cells(row) for row in found.rows])

    show(look, output, watch)


def use_token_file(path: Path | None) -> None:
    """Chooses the token's file for all questions of this command. None: the environment or the
    context has the token, or there is none.
    """
    _token_file.set(path)


def use_ca_file(path: Path | None) -> None:
    """Chooses the CA file for all https questions of this command. None: the context names it, or
    the system's trust store counts.
    """
    _ca_file.set(path)


def _trust(*, of_context: bool) -> ssl.SSLContext | bool:
    """`of_context`: the CA file of the context counts, as the node is the context's. Ends the
    command if the file cannot be used.
    """
    path = _ca_file.get()
    if path is None and of_context:
        path = context().ca_file
    if path is None:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        end(f"--ca-file {path}: {error.strerror or 'no PEM certificates'}", Exit.CONFIGURATION)


def use_admin(address: str) -> None:
    """Chooses the node's REST address for all questions of this command that name no other. Empty:
    the context has it.
    """
    _admin.set(address)


def _authorization(*, of_context: bool) -> dict[str, str]:
    """`of_context`: the context's token is for this node; no other node gets it. Ends the command
    if the token cannot be read. It is in no message.
    """
    path = _token_file.get()
    if path is None and of_context and TOKEN_VARIABLE not in os.environ:
        path = context().token_file
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if path is None else path.read_text("utf-8")
    except OSError as error:
        end(f"--token-file {path}: {error.strerror}", Exit.CONFIGURATION)
    except UnicodeDecodeError:
        end(f"--token-file {path}: not UTF-8", Exit.CONFIGURATION)
    token = token.strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        end(f"{TOKEN_VARIABLE if path is None else path}: holds no token", Exit.CONFIGURATION)
    return {"Authorization": f"Bearer {token}"}


def ask(
    admin: str,
    path: str,
    model: type[RowT],
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    also: int | None = None,
    tell: bool = True,
) -> Answer[RowT]:
    """Sends the caller's token, if there is one. Ends the command if the node refuses, or if no
    node answers. `also`: a status that is an answer, too. `tell`: nodes that are missing in the
    answer, on stderr.
    """
    import httpx  # keeps `keyway --help` quick

    admin = admin or _admin.get()
    of_context = not admin
    admin = admin or context().admin
    address = admin if "://" in admin else f"http://{admin}"
    try:
        response = httpx.request(
            method,
            address.rstrip("/") + path,
            json=body,
            headers=_authorization(of_context=of_context),
            # Without TLS there is nothing to verify, and loading the authorities takes 30 ms.
            verify=not address.startswith("http:") and _trust(of_context=of_context),
            timeout=ANSWER_S_MAX,
        )
        if response.is_success or response.status_code == also:
            raw = response.json()
            if tell:
                _tell_unanswered(raw)
            return Answer(raw, model.model_validate(raw))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, UnicodeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        end(f"no node answers at {admin}: {reason}", Exit.AWAY)
    no_token = response.status_code == 401 and "authorization" not in response.request.headers
    end(_title(response) + (f" (--token-file or {TOKEN_VARIABLE})" if no_token else ""))


def end_if_unanswered(raw: Mapping[str, Any]) -> None:
    """Ends the command with status 1 if a node is missing in the answer, for commands that are to
    decide about the records of all nodes.
    """
    if raw.get("unanswered"):
        names = ", ".join(str(silent["node"]) for silent in raw["unanswered"])
        end(f"not all nodes have answered: what {names} has is left out")


def _tell_unanswered(raw: object) -> None:
    """The rest of the answer is shown all the same."""
    for silent in raw.get("unanswered", ()) if isinstance(raw, dict) else ():
        text = f"keyway: node {silent['node']} is missing here: {silent['reason']}"
        typer.echo("".join(c if c.isprintable() else " " for c in text), err=True)


def _title(response: httpx.Response) -> str:
    try:
        return str(response.json()["title"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}"  # not a node of ours
