"""REST of the distribution between clusters: `GET /v1/links`, `/v1/offsets`, `/v1/schemas`.

The services that distribute keep their status in topics of the clusters. `keyway distribute
status`, `keyway offsets status` and `keyway schemas status` read it there. The node runs the same
commands as processes of their own: the packages they need stay out of the node, and a cluster that
hangs costs a process until its deadline. An answer is kept for a few seconds, however many ask.
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

from gateway.admin.limits import STATUS_KEPT_MS, STATUS_PROBLEMS_SHOWN, STATUS_S_MAX
from gateway.admin.node_rows import StatusRow
from gateway.admin.problems import answered

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
    _kept: dict[str, StatusRow] = field(default_factory=dict)  # by path
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def status(self, path: str) -> StatusRow:
        """Raises HTTPException."""
        if self.clusters_file is None:
            raise HTTPException(404, "the node knows no clusters: admin.clusters_file is not set")
        async with self._locks.setdefault(path, asyncio.Lock()):
            kept = self._kept.get(path)
            if kept is None or self.now_ms() - kept.at_ms >= STATUS_KEPT_MS:
                kept = self._kept[path] = await self._asked(path, self.clusters_file)
            return kept

    async def _asked(self, path: str, clusters_file: Path) -> StatusRow:
        words = (*self.command, *COMMANDS[path], str(clusters_file), "-o", "json")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        name = " ".join(COMMANDS[path])
        try:
            async with asyncio.timeout(STATUS_S_MAX):
                out, err = await process.communicate()
        except TimeoutError:
            raise HTTPException(
                503, f"keyway {name}: no answer in {STATUS_S_MAX} s: is a cluster away?"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
        try:
            found = json.loads(out)
        except ValueError:
            reason = said[-1] if said else f"exit status {process.returncode}"
            raise HTTPException(503, f"keyway {name}: {reason}") from None
        return StatusRow(at_ms=self.now_ms(), status=found, problems=said[-STATUS_PROBLEMS_SHOWN:])


def distribution_routes(distribution: Distribution) -> list[Route]:
    async def show(request: Request) -> Response:
        return answered(await distribution.status(request.url.path))

    return [Route(path, show, methods=["GET"]) for path in COMMANDS]
