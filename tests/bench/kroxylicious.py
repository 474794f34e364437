"""Kroxylicious, a gateway for Kafka's protocol in Java, with a TLS listener and no filter.

Its jars are fetched when a bench wants them. Maven Central has its runtime, and no program of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.kafka import TUNED_JVM
from gateway.embedded.process import free_ports, kill_child, port_is_free, start_child
from tests.rig.certificates import Issued
from tests.rig.clients.java_jars import jars
from tests.rig.clients.java_programs import compile_programs
from tests.rig.patience import wait_until

_MODULE = "io.kroxylicious:kroxylicious-runtime:0.12.0"


@dataclass(frozen=True, slots=True)
class Kroxylicious:
    address: str  # for clients with TLS
    pid: int


@contextmanager
def kroxylicious(directory: Path, upstream: str, own: Issued) -> Iterator[Kroxylicious]:
    """Before one broker, whose id is 2 at most. Raises SetupError if the jars cannot be fetched."""
    sources = Path(__file__).parent / "java" / "kroxylicious"
    programs = compile_programs(sources, jars("kroxylicious", _MODULE))
    port = free_ports(4)  # of the bootstrap address, and of the brokers 0 to 2
    key = {"privateKeyFile": str(own.key_file), "certificateFile": str(own.cert_file)}
    front = {
        "name": "tls",
        "portIdentifiesNode": {"bootstrapAddress": f"127.0.0.1:{port}"},
        "tls": {"key": key},
    }
    cluster = {
        "name": "bench",
        "targetCluster": {"bootstrapServers": upstream},
        "gateways": [front],
    }
    directory.mkdir(parents=True, exist_ok=True)
    configuration = directory / "configuration.yaml"
    configuration.write_text(json.dumps({"virtualClusters": [cluster]}))
    command = programs.command("KroxyliciousServer", str(configuration), options=TUNED_JVM)
    log = directory / "log"
    child = start_child(command, log=log)
    try:
        wait_until(
            lambda: child.poll() is not None or not port_is_free(port),
            what="Kroxylicious listens",
            deadline_s=60,
        )
        assert child.poll() is None, log.read_text()
        yield Kroxylicious(f"127.0.0.1:{port}", child.pid)
    finally:
        kill_child(child)
