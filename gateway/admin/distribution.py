"""REST of the distribution between clusters: `GET /v1/clusters` (their file, as it is now), and
`/v1/links`, `/v1/offsets`, `/v1/schemas`.

The services that distribute keep their status in topics of the clusters. `keyway distribute
status`, `keyway offsets status` and `keyway schemas status` read it there, and the node shows their
answers. It looks as often as they do, so an answer is as old as the last look of the command.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.limits import STATUS_EVERY_S
from gateway.admin.node_rows import ClustersRow, LinkRow, TreeRow
from gateway.admin.problems import answered
from gateway.admin.status_parts import PartOf, part_asked
from gateway.admin.watched_command import CommandFailed, WatchedCommand
from keyway.clusters.config import ConfigError, TreeNode, load

COMMANDS: Final[Mapping[str, Sequence[str]]] = {  # by path
    "/v1/links": ("distribute", "status"),
    "/v1/offsets": ("offsets", "status"),
    "/v1/schemas": ("schemas", "status"),
}


@dataclass(slots=True)
class Distribution:
    """`clusters_file` None: not configured."""

    clusters_file: Path | None
    now_ms: Callable[[], int]
    command: Sequence[str] = (sys.executable, "-m", "gateway.cli")
    _watched: dict[str, WatchedCommand] = field(default_factory=dict)  # by path
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        if self.clusters_file is None:
            return
        again = ("--watch", str(STATUS_EVERY_S), "-o", "json")
        for path, words in COMMANDS.items():
            self._watched[path] = WatchedCommand(
                name=" ".join(("keyway", *words)),
                words=(*self.command, *words, str(self.clusters_file), *again),
                file=self.clusters_file,
                now_ms=self.now_ms,
            )

    async def run(self) -> None:
        """The commands that somebody asks for, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watched in self._watched.values():
                tasks.create_task(watched.run())

    async def clusters(self) -> ClustersRow:
        """Raises HTTPException, which names the fault of the file."""
        if self.clusters_file is None:
            raise _not_configured()
        try:
            config = await asyncio.to_thread(load, self.clusters_file)
        except ConfigError as error:
            raise HTTPException(503, str(error)) from None
        links = config.checked_tree().distributors
        return ClustersRow(
            file=str(self.clusters_file),
            tree=_tree_row(config.tree),
            links=[
                LinkRow(source=link.source, level=link.level, targets=[*link.targets])
                for link in links
            ],
            primary=config.schemas.primary,
        )

    async def status(self, path: str, part_of: PartOf | None = None) -> bytes:
        """A StatusRow as JSON. The command's own JSON may be long: it is read only for a part of
        it, one question at a time. Raises HTTPException.
        """
        watched = self._watched.get(path)
        if watched is None:
            raise _not_configured()
        try:
            if part_of is None:
                look = await watched.latest()
                said = (look.at_ms, look.text, json.dumps(look.problems).encode())
                return b'{"at_ms":%d,"status":%b,"problems":%b}' % said
            async with self._reading:  # A caller that waits for it holds no look.
                look = await watched.latest()
                part = await asyncio.to_thread(part_of, look.text)
        except CommandFailed as error:
            raise HTTPException(503, str(error)) from None
        except ValueError as error:
            raise HTTPException(503, f"{watched.name}: its answer is not read: {error}") from error
        return b'{"at_ms":%d,"status":%b,"problems":%b,"next":%b}' % (
            *(look.at_ms, part.status.encode(), json.dumps(look.problems).encode()),
            json.dumps(part.following).encode(),
        )


def _not_configured() -> HTTPException:
    return HTTPException(404, "the node knows no clusters: admin.clusters_file is not set")


def _tree_row(node: TreeNode) -> TreeRow:
    assert node.level is not None, "the file was checked"
    below = [child if isinstance(child, str) else _tree_row(child) for child in node.children]
    return TreeRow(level=node.level, children=below)


def distribution_routes(distribution: Distribution) -> list[Route]:
    async def show_clusters(_: Request) -> Response:
        return answered(await distribution.clusters())

    async def show(request: Request) -> Response:
        text = await distribution.status(request.url.path, part_asked(request))
        return Response(text, media_type="application/json")

    return [
        Route("/v1/clusters", show_clusters, methods=["GET"]),
        *(Route(path, show, methods=["GET"]) for path in COMMANDS),
    ]
