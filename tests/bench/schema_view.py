"""`python -m tests.bench.schema_view`: a node beside its registry view, in one run of two minutes.

The view holds 30,000 versions. Measured at rest, while strangers send look-ups of 16 MB and of what
a view takes, and while versions are registered: the gateway's answers to a Kafka client, the view's
to its clients, and the view's memory. Exit code 1 if a bar is missed; the bars compare with rest.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from schema_dist.core.model import PROTOBUF, Schema, SchemaVersion
from tests.rig.gateway_process import GatewayProcess
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, version

VERSIONS = 30_000
SUBJECTS = 3_000
PHASE_S = 15.0
REGISTRATIONS_PER_S = 20
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
Figures = dict[str, float]


def made(at: int) -> SchemaVersion:
    text = json.dumps({"type": "fixed", "name": f"n{at}", "size": 1})
    subject = f"acme-s{at % SUBJECTS}-value"
    return version(subject, at // SUBJECTS + 1, at + 1, Schema("AVRO", text))


@contextmanager
def timed(ask: Callable[[], None], pause_s: float) -> Iterator[list[float]]:
    """Asks again and again meanwhile; the seconds of each answer."""
    seconds, over = list[float](), threading.Event()

    def work() -> None:
        while not over.is_set():
            began = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - began)
            time.sleep(pause_s)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


@contextmanager
def kafka_client(address: str) -> Iterator[Callable[[], None]]:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:

        def ask() -> None:
            connection.sendall(_API_VERSIONS)
            size = struct.unpack(">i", _exactly(connection, 4))[0]
            _exactly(connection, size)

        yield ask


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the node closed the connection"
        data += more
    return data


@contextmanager
def registry_client(url: str) -> Iterator[Callable[[], None]]:
    client, turn = httpx.Client(trust_env=False, timeout=60), 0

    def ask() -> None:
        nonlocal turn
        turn += 1
        at = turn * 7_919 % VERSIONS
        paths = (f"/schemas/ids/{at + 1}", f"/subjects/s{at % SUBJECTS}-value/versions/latest")
        assert client.get(url + paths[turn % 2]).status_code == 200

    with client:
        yield ask


def strangers(url: str) -> Iterator[threading.Thread]:
    """Look-ups of 16 MB, and of nearly the most that a view takes, as fast as they are answered."""
    for size in (16_000_000, 1_900_000, 1_900_000):
        text = "message M { string a = 1; }\n" * (size // 28)
        body = json.dumps({"schema": text, "schemaType": PROTOBUF}).encode()

        def work(body: bytes = body) -> None:
            end = time.monotonic() + PHASE_S
            while time.monotonic() < end:
                try:
                    HTTP.post(f"{url}/subjects/s1-value", content=body)
                except httpx.HTTPError:
                    continue  # refused while it is being sent

        yield threading.Thread(target=work)


def figures(seconds: list[float]) -> Figures:
    ordered = sorted(seconds)
    at = (len(ordered) // 2, int(len(ordered) * 0.99), -1)
    made = (round(ordered[rank] * 1000, 2) for rank in at)
    return dict(zip(("p50_ms", "p99_ms", "max_ms"), made, strict=True)) | {"count": len(ordered)}


def phase(node: GatewayProcess, url: str, work: list[threading.Thread]) -> dict[str, Any]:
    with (
        kafka_client(node.bootstrap) as ask_node,
        registry_client(url) as ask_view,
        timed(ask_node, 0.002) as kafka,
        timed(ask_view, 0.005) as registry,
    ):
        for thread in work:
            thread.start()
        time.sleep(PHASE_S)
    for thread in work:
        thread.join()
    return {
        "gateway": figures(kafka),
        "view": figures(registry),
        "view_memory_mb": round(metric(node, "keyway_registry_view_memory_bytes") / 1e6),
    }


def metric(node: GatewayProcess, name: str) -> float:
    lines = HTTP.get(f"http://{node.admin}/metrics").text.splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)


def measured(folder: Path, kafka: str) -> dict[str, Any]:
    site = Site(kafka, folder, "view")
    site.register(map(made, range(VERSIONS)))
    port = free_ports(1)
    site.a["registry_view"] = {"port": port}
    url = f"http://127.0.0.1:{port}"
    node = GatewayProcess(folder / "node", kafka)
    settings = yaml.safe_load(node.config.read_text())
    settings["registry_view"] = {"clusters_file": str(site.config()), "cluster": "a"}
    node.config.write_text(yaml.safe_dump(settings))
    node.start()
    try:
        wait_until(
            lambda: metric(node, "keyway_registry_view_versions") == VERSIONS,
            what="the versions",
            deadline_s=120,
        )

        def register() -> None:
            for at in range(int(PHASE_S * REGISTRATIONS_PER_S)):
                site.register([made(VERSIONS + at)])
                time.sleep(1 / REGISTRATIONS_PER_S)

        return {
            "rest": phase(node, url, []),
            "look_ups": phase(node, url, list(strangers(url))),
            "registrations": phase(node, url, [threading.Thread(target=register)]),
            "again": phase(node, url, list(strangers(url))),
        }
    finally:
        node.stop()


def missed(found: dict[str, Any]) -> list[str]:
    """The bars are wide: other work on the machine moves a p99, a stall of seconds is another."""
    rest, bars = found["rest"], list[str]()
    for name in ("look_ups", "registrations", "again"):
        if found[name]["gateway"]["p99_ms"] > 2 * rest["gateway"]["p99_ms"] + 10:
            bars.append(f"{name}: the gateway's p99")
    if found["registrations"]["view"]["p99_ms"] > 2 * rest["view"]["p99_ms"] + 20:
        bars.append("registrations: the view's p99")
    if found["again"]["view_memory_mb"] > found["look_ups"]["view_memory_mb"] * 1.1 + 20:
        bars.append("the view's memory grows with look-ups")
    return bars


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, KafkaCluster(1) as cluster:
        found = measured(Path(folder), cluster.bootstrap_servers)
    bars = missed(found)
    sys.stdout.write(json.dumps(found | {"missed": bars}, indent=2) + "\n")
    return int(bool(bars))


if __name__ == "__main__":
    sys.exit(main())
