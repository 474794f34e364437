"""The status of a distribution over REST, by the real commands: a file with a fault, clusters that
are away. tests/browser/test_links.py has answers of clusters that are there.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException

from gateway.admin import watched_command
from gateway.admin.distribution import COMMANDS, Distribution
from gateway.admin.rest import rest_app
from keyway.clusters.config import load
from offsets.commands import Decisions
from schema_dist.commands import Targets
from spark.links.show import Links
from tests.rig.patience import patient_s
from tests.rig.rest_parts import rest_parts

FILE = """
clusters:
  - {name: ams, bootstrap_servers: "127.0.0.1:1"}
  - {name: fra, bootstrap_servers: "127.0.0.1:1"}
  - {name: nyc, bootstrap_servers: "127.0.0.1:1"}
tree: {level: 2, children: [{level: 1, children: [ams, fra], targets: [fra]}, nyc]}
schemas: {primary: ams}
"""


def now_ms() -> int:
    return 1_000_000


def test_the_clusters_of_the_file(tmp_path: Path) -> None:
    """Read anew each time."""
    file = tmp_path / "clusters.yaml"
    of = Distribution(file, now_ms)
    file.write_text(FILE)
    found = asyncio.run(of.clusters()).model_dump()
    assert found["tree"] == {
        "level": 2,
        "children": [{"level": 1, "children": ["ams", "fra"]}, "nyc"],
    }
    assert [(link["source"], link["level"], link["targets"]) for link in found["links"]] == [
        ("ams", 1, ["fra"]),
        ("ams", 2, ["nyc"]),
        ("fra", 1, ["ams"]),
        ("fra", 2, ["nyc"]),
        ("nyc", 2, ["fra"]),
    ]
    assert (found["file"], found["primary"]) == (str(file), "ams")
    file.write_text(FILE.replace("level: 1", "level: 3"))
    with pytest.raises(HTTPException) as refused:
        asyncio.run(of.clusters())
    assert refused.value.status_code == 503
    assert f"{file}: tree: the node of ams, fra has level 3" in refused.value.detail
    file.unlink()
    with pytest.raises(HTTPException, match="No such file"):
        asyncio.run(of.clusters())


def test_without_a_file() -> None:
    of = Distribution(None, now_ms)
    asyncio.run(of.run())
    for ask in (of.clusters, lambda: of.status("/v1/links")):
        with pytest.raises(HTTPException) as refused:
            asyncio.run(ask())
        assert refused.value.status_code == 404
        assert "admin.clusters_file is not set" in refused.value.detail


def asked(file: Path, *paths: str) -> list[dict[str, Any] | HTTPException]:
    """The answer of each path, or the refusal."""

    async def ask(of: Distribution, path: str) -> dict[str, Any] | HTTPException:
        try:
            found: dict[str, Any] = json.loads(await of.status(path))
        except HTTPException as refused:
            return refused
        return found

    async def work() -> list[dict[str, Any] | HTTPException]:
        of = Distribution(file, now_ms)
        running = asyncio.ensure_future(of.run())
        try:
            return await asyncio.gather(*(ask(of, path) for path in paths))
        finally:
            running.cancel()
            await asyncio.wait([running])

    return asyncio.run(work())


# Prints the answers of the three commands, in place of clusters.
COMMAND = """
import json, sys, time
row = {"group": "g", "topic": "t", "cluster": "fra"}
answer = {
    "distribute": [{"link": "ams-level-1", "topics": {"t": {}, "u": {}}}],
    "offsets": {"rows": [row | {"partition": partition} for partition in range(3)], "away": []},
    "schemas": {"targets": {}},
}[sys.argv[1]]
print("keyway: nyc is away", file=sys.stderr, flush=True)
print(json.dumps(answer), flush=True)
time.sleep(60)
"""


def test_all_of_a_status_and_parts_of_it(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(FILE)
    of = Distribution(file, now_ms, (sys.executable, "-c", COMMAND))
    app = rest_app(rest_parts(distribution=of), loopback=True)

    async def work() -> None:
        running = asyncio.ensure_future(of.run())
        transport = httpx.ASGITransport(app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as rest:
                await tell(rest)
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def tell(rest: httpx.AsyncClient) -> None:
        async def asked(path: str) -> dict[str, Any]:
            answer = await rest.get(path)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            assert found.pop("at_ms") == now_ms()
            assert found.pop("problems") == ["nyc is away"]
            return found

        (link,) = (await asked("/v1/links"))["status"]
        assert link["topics"].keys() == {"t", "u"}
        part = await asked("/v1/links?topic=u")
        assert part == {"status": [{**link, "topics": {"u": {}}}], "next": None}
        whole = await asked("/v1/offsets")
        assert whole.keys() == {"status"}
        first = await asked("/v1/offsets?limit=2")
        assert first["status"]["rows"] == whole["status"]["rows"][:2]
        last = await asked(f"/v1/offsets?limit=2&after={first['next']}")
        assert last == {"status": {"rows": whole["status"]["rows"][2:], "away": []}, "next": None}
        assert (await rest.get("/v1/offsets?after=x")).status_code == 400
        refused = await rest.get("/v1/schemas?target=fra")
        assert refused.status_code == 503
        assert refused.json()["title"].startswith("keyway schemas status: its answer is not read: ")

    asyncio.run(work())


def test_a_file_with_a_fault_is_named_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_command, "STATUS_S_MAX", patient_s(60))
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters: 7\n")
    for path, refused in zip(COMMANDS, asked(file, *COMMANDS), strict=True):
        assert isinstance(refused, HTTPException)
        assert refused.status_code == 503
        assert f"keyway {' '.join(COMMANDS[path])}: {file}: clusters" in refused.detail


def test_a_cluster_that_hangs_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    """It takes the connection, and says nothing. Nobody listens at the others' address."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "clusters.yaml"
        file.write_text(FILE.replace("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}", 1))
        config = load(file)
        links = Links(config).look(within_s=0.1)
        assert [(link["link"], link["state"]) for link in links][:2] == [
            ("ams-level-1", "unknown"),
            ("ams-level-2", "unknown"),
        ]
        assert links[0]["error"] == "no answer yet, after 0.1 s"
        groups = Decisions(config).look(within_s=0.1)
        assert groups.rows == ()
        assert groups.away[0] == "ams: no answer yet, after 0.1 s"
        schemas = Targets(config).look(within_s=0.1)
        assert schemas.code == 3
        assert schemas.away == (
            "fra: no answer yet, after 0.1 s",
            "nyc: no answer yet, after 0.1 s",
        )
        assert schemas.fields["targets"][0] == {
            "target": "fra",
            "problem": "no answer yet, after 0.1 s",
        }
