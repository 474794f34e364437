"""TLS towards clients: Keyway's beside Kafka's own, Kroxylicious', and Keyway without TLS.

Kafka's own ProducerPerformance and ConsumerPerformance with the settings of cases.py; the latency
of acks=all at a rate that all reach, as ProducerPerformance tells it; and full handshakes of
one client after the other (TLS 1.3, ECDSA P-256, no session is resumed). All have the same
certificate. The way from a gateway to Kafka is plain, so each record is under TLS once.
"""

from __future__ import annotations

import itertools
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from gateway.embedded.process import free_ports
from tests.bench.cases import BENCH_JVM, PARTITIONS, Bench, finish, run_producer_perf
from tests.bench.cost import UNIT, cpu_s
from tests.bench.kroxylicious import kroxylicious
from tests.bench.rows import Row, rows_of
from tests.rig.certificates import Authority
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic

PART = "tls"
RATE = "records/s"
HANDSHAKES = 200  # of a round
LATENCY_PER_S = 2_000  # records, for LATENCY_S
LATENCY_S = 8
OURS, PLAIN, THEIRS = "Keyway TLS", "Keyway plain", "Kafka TLS"
PEERS = "Kroxylicious TLS"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Site:
    kafka: KafkaCluster
    addresses: dict[str, str]  # by side
    gateways: dict[str, psutil.Process]  # by side
    settings: Path  # of clients with TLS
    trust: ssl.SSLContext


def tls(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    rates: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    shakes: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with _site(bench.directory / "tls") as site:
        read = _topic(site)
        _produce(bench, site, THEIRS, read, bench.records, -1)
        # Both JVMs are warm before the first round.
        _produce(bench, site, PEERS, _topic(site), bench.records, -1)
        _consume(bench, site, PEERS, read)
        for at in rounds:
            sides = [OURS, PLAIN, THEIRS, PEERS]
            for side in sides[at % 4 :] + sides[: at % 4]:
                with _cost(bench, site, side, costs, "producer's CPU"):
                    produced, _ = _produce(bench, site, side, _topic(site), bench.records, -1)
                with _cost(bench, site, side, costs, "consumer's CPU"):
                    consumed = _consume(bench, site, side, read)
                few = LATENCY_PER_S * LATENCY_S
                _, latencies = _produce(bench, site, side, _topic(site), few, LATENCY_PER_S)
                rates.setdefault(f"tls producer: {side}", []).append(produced)
                rates.setdefault(f"tls consumer: {side}", []).append(consumed)
                for name, took in latencies.items():
                    times.setdefault(f"tls {name}: {side}", []).append(took)
                if side != PLAIN:
                    found = _handshakes(site, side)
                    shakes.setdefault(f"tls handshakes: {side}", []).append(found)
                sys.stdout.write(f"round {at + 1}  {side}: {produced:,.0f}, {consumed:,.0f}\n")
                sys.stdout.flush()
    return [
        *rows_of(rates, _pairs(rates), unit=RATE),
        *rows_of(costs, _pairs(costs), unit=UNIT, digits=2),
        *rows_of(times, _pairs(times), unit="ms", digits=1),
        *rows_of(shakes, _pairs(shakes), unit="handshakes/s"),
    ]


@contextmanager
def _cost(
    bench: Bench, site: Site, side: str, costs: dict[str, list[float]], name: str
) -> Iterator[None]:
    """What the gateway takes meanwhile: a busy machine does not change it. Kafka has none."""
    gateway = site.gateways.get(side)
    before = cpu_s(gateway) if gateway is not None else 0
    yield
    if gateway is not None:
        spent = (cpu_s(gateway) - before) / (bench.records / 1e6)
        costs.setdefault(f"tls {name}: {side}", []).append(spent)


def _pairs(samples: dict[str, list[float]]) -> dict[str, tuple[str, ...]]:
    """Ours against the TLS of Kafka and of Kroxylicious, and against ours without."""
    return {
        name: tuple(
            other
            for side in (THEIRS, PEERS, PLAIN)
            if (other := name.replace(OURS, side)) in samples and other != name
        )
        for name in samples
        if name.endswith(OURS)
    }


@contextmanager
def _site(directory: Path) -> Iterator[Site]:
    authority = Authority(directory / "certificates")
    own = authority.issue("both")
    store = directory / "store.pem"
    store.write_text(own.key_file.read_text() + own.cert_file.read_text())
    settings = directory / "client.properties"
    trusted = f"ssl.truststore.type=PEM\nssl.truststore.location={authority.ca_file}\n"
    settings.write_text(f"security.protocol=SSL\n{trusted}")
    first, ours = free_ports(3), free_ports(6)
    plain, controller, secure = first, first + 1, first + 2
    advertised = f"CLIENT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}"
    properties = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    listener = {
        "name": "tls",
        "bootstrap_port": ours,
        "port_base": ours + 1,
        "tls": own.as_options(),
    }
    with (
        KafkaCluster(1, jvm=TUNED_JVM, properties=properties, ports=(plain,)) as kafka,
        GatewayProcess(
            directory / "gateway", kafka.bootstrap_servers, listeners=[listener]
        ) as gateway,
        kroxylicious(directory / "kroxylicious", kafka.bootstrap_servers, own) as peers,
    ):
        addresses = {
            OURS: f"127.0.0.1:{ours}",
            PLAIN: gateway.bootstrap,
            THEIRS: f"127.0.0.1:{secure}",
            PEERS: peers.address,
        }
        own_process = psutil.Process(gateway.pid)
        gateways = {OURS: own_process, PLAIN: own_process, PEERS: psutil.Process(peers.pid)}
        yield Site(kafka, addresses, gateways, settings, authority.trusting())


def _topic(site: Site) -> str:
    name = f"bench-tls-{next(_numbers)}"
    create_topic(site.kafka.bootstrap_servers, name, partitions=PARTITIONS)
    return name


def _config(site: Site, side: str) -> tuple[str, ...]:
    return () if side == PLAIN else ("--command-config", str(site.settings))


def _produce(
    bench: Bench, site: Site, side: str, topic: str, records: int, per_second: int
) -> tuple[float, dict[str, float]]:
    """Its rate, and its latencies in ms."""
    last = run_producer_perf(
        bench,
        site.addresses[side],
        topic,
        records,
        *_config(site, side),
        per_second=per_second,
    )
    rate = re.search(r"([\d.]+) records/sec", last)
    found = {name: re.search(rf"(\d+) ms {name}th", last) for name in ("50", "99")}
    assert rate is not None, last
    latencies = {f"p{name}": float(match[1]) for name, match in found.items() if match is not None}
    return float(rate[1]), latencies


def _consume(bench: Bench, site: Site, side: str, topic: str) -> float:
    output = finish(
        bench,
        bench.programs.command(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", site.addresses[side], "--topic", topic),
            *("--num-records", str(bench.records), "--group", f"bench-tls-{next(_numbers)}"),
            *("--timeout", "30000", "--hide-header", *_config(site, side)),
            options=BENCH_JVM,
        ),
    )
    fields = output.strip().splitlines()[-1].split(",")
    assert int(fields[4]) >= bench.records, output
    return float(fields[9])  # fetch.nMsg.sec


def _handshakes(site: Site, side: str) -> float:
    host, _, port = site.addresses[side].partition(":")
    began = time.perf_counter()
    for _ in range(HANDSHAKES):
        with socket.create_connection((host, int(port))) as plain:
            plain.settimeout(30)
            with site.trust.wrap_socket(plain, server_hostname="localhost"):
                pass
    return HANDSHAKES / (time.perf_counter() - began)
