"""What `keyway doctor` sees of other nodes: in a real Redis, and at the addresses they publish."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.core.routing.ownership import Node
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from gateway.node.other_nodes import look_at_nodes
from gateway.routing.build import CLOCK_OFF_MS, SETTINGS, agreed_settings, settings_digest
from gateway.routing.shared_table import SharedTable


@contextmanager
def answering(name: str) -> Iterator[str]:
    """REST of a node, as far as its name goes. Gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert "authorization" not in self.headers
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"node": name, "proof": "p"}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def configured(url: str, **more: Any) -> Config:
    return Config.model_validate({"nodes": {"id": "a"}, "state": {"redis_url": url}, **more})


async def published(url: str, config: Config, rest: str, port: int, off_ms: float) -> None:
    """As node b does it."""
    async with Redis.from_url(url) as client:
        facts = {"admin": rest, SETTINGS: settings_digest(config), CLOCK_OFF_MS: off_ms}
        node = Node(id="b", serves={1: {"clients": ("127.0.0.1", port)}})
        await SharedTable(client, "i").beat(node, agreed_settings(config, "cluster"), facts)


def found(url: str, cluster_id: str | None, **more: Any) -> list[tuple[str, str, str]]:
    findings = asyncio.run(look_at_nodes(configured(url, **more), cluster_id))
    return [(finding.check, finding.status.value, finding.found) for finding in findings]


def test_another_node_that_is_well_and_one_that_is_not(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, port=free_ports()) as server, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        url = server.tcp_url
        (alone,) = found(url, "cluster")
        assert alone[:2] == ("nodes", "ok")
        with answering("b") as rest:
            asyncio.run(published(url, configured(url), rest, port, 0.0))
            assert [row[1] for row in found(url, "cluster")] == ["ok"] * 4
            assert [row[1] for row in found(url, None)] == ["ok"] * 4
            differing = {"groups": [{"match": "x"}], "listen": {"slots_per_broker": 2}}
            statuses = [row[:2] for row in found(url, "another", **differing)]
            assert statuses.count(("settings of nodes", "fault")) == 2
            assert ("settings of nodes", "warning") in statuses
        with answering("c") as rest:
            asyncio.run(published(url, configured(url), rest, free_ports(), 9_000.0))
            amiss = found(url, "cluster")
    assert [row[0] for row in amiss if row[1] == "warning"] == [
        "clocks of nodes",
        "addresses of nodes",
        "addresses of nodes",
    ]
    assert f"REST of node b at {rest}: node c answers there" in amiss[3][2]
    assert "Connect call failed" in amiss[4][2] or "refused" in amiss[4][2]


def test_without_redis_or_without_a_name_nothing_is_said_of_nodes() -> None:
    assert [row[:2] for row in found("redis://127.0.0.1:1", "c")] == [("nodes", "skipped")]
    assert asyncio.run(look_at_nodes(Config(), "c")) == []
