"""Stock clients over TLS, with certificates of their own, and over server names on one port."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.certificates import Authority, Issued
from tests.rig.clients.java_programs import JVM_OPTIONS, JavaPrograms
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.patience import patient_s
from tests.rig.resolved_names import DOMAIN, hosts_file, preloaded

COUNT = 200
SECONDS_MAX = 240.0
EARLIEST = [{"match": "*", "auto_offset_reset": "earliest"}]
BROKER_IDS = 3


@dataclass(frozen=True)
class Front:
    gateway: GatewayProcess
    authority: Authority
    client: Issued
    tls: str  # bootstrap addresses
    mutual: str
    names: str

    def librdkafka(self, servers: str, *, certificate: bool = False) -> dict[str, Any]:
        own = {
            "ssl.certificate.location": str(self.client.cert_file),
            "ssl.key.location": str(self.client.key_file),
        }
        return {
            "bootstrap.servers": servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "log_level": 3,
            **(own if certificate else {}),
        }

    def java(self, directory: Path, *, certificate: bool) -> str:
        store = directory / "client-store.pem"
        store.write_text(self.client.key_file.read_text() + self.client.cert_file.read_text())
        lines = [
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority.ca_file}",
        ]
        if certificate:
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
        properties = directory / "client.properties"
        properties.write_text("\n".join(lines) + "\n")
        return str(properties)


@pytest.fixture(scope="module")
def front(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "authority")
    own = authority.issue(
        "gateway", alternatives=f"DNS:localhost,IP:127.0.0.1,DNS:{DOMAIN},DNS:*.{DOMAIN}"
    )
    tls, mutual, names = (free_ports(BROKER_IDS + 2) for _ in range(3))
    with_clients = {"client_auth": "required", "client_ca_file": str(authority.ca_file)}
    listeners = [
        {
            "name": "tls",
            "bootstrap_port": tls,
            "port_base": tls + 1,
            "tls": own.as_options(),
        },
        {
            "name": "mutual",
            "bootstrap_port": mutual,
            "port_base": mutual + 1,
            "tls": {**own.as_options(), **with_clients},
        },
        {
            "name": "names",
            "bootstrap_port": names,
            "tls": own.as_options(),
            "sni": {"bootstrap": DOMAIN, "broker": f"broker-{{id}}.{DOMAIN}"},
        },
    ]
    with GatewayProcess(
        directory / "gateway", kafka.bootstrap_servers, groups=EARLIEST, listeners=listeners
    ) as gateway:
        yield Front(
            gateway,
            authority,
            authority.issue("client"),
            tls=f"localhost:{tls}",
            mutual=f"127.0.0.1:{mutual}",
            names=f"{DOMAIN}:{names}",
        )


def round_trip(
    directory: Path,
    topic: str,
    fresh_name: Callable[[str], str],
    client: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> None:
    settings = directory / "settings.json"
    settings.write_text(
        json.dumps(
            {
                "client": client,
                "topic": topic,
                "count": COUNT,
                "group": fresh_name("group"),
                "share_group": fresh_name("share"),
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.rig.clients.librdkafka_round_trip", str(settings)],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=patient_s(SECONDS_MAX),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {"failed": [], "left": 0, "consumed": COUNT, "shared": COUNT}
    assert json.loads(done.stdout) == expected, done.stderr


@pytest.mark.parametrize("certificate", [False, True], ids=["tls", "mutual"])
def test_librdkafka(
    front: Front,
    kafka: KafkaCluster,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    certificate: bool,
) -> None:
    """Producer, Consumer, ShareConsumer of confluent-kafka."""
    topic = fresh_name("tls")
    create_topic(kafka.bootstrap_servers, topic, partitions=2)
    servers = front.mutual if certificate else front.tls
    client = front.librdkafka(servers, certificate=certificate)
    round_trip(tmp_path, topic, fresh_name, client)


@pytest.mark.deep
def test_librdkafka_over_server_names(
    front: Front, kafka: KafkaCluster, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    environment = preloaded(tmp_path)
    if environment is None:
        pytest.skip("no C compiler")
    topic = fresh_name("names")
    create_topic(kafka.bootstrap_servers, topic, partitions=2)
    round_trip(tmp_path, topic, fresh_name, front.librdkafka(front.names), environment)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("tls", marks=pytest.mark.deep),
        "mutual",
        pytest.param("names", marks=pytest.mark.deep),
    ],
)
def test_java(
    front: Front,
    kafka: KafkaCluster,
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms,
    tmp_path: Path,
    way: str,
) -> None:
    """Producer, KafkaConsumer and KafkaShareConsumer, by Kafka's own tools."""
    topic = fresh_name("java")
    create_topic(kafka.bootstrap_servers, topic)
    servers = getattr(front, way)
    settings = front.java(tmp_path, certificate=way == "mutual")
    options: tuple[str, ...] = JVM_OPTIONS
    if way == "names":
        options = (*options, hosts_file(tmp_path, DOMAIN, f"broker-1.{DOMAIN}"))
    lines = [f"line-{number}" for number in range(COUNT)]

    def run(main: str, config_option: str, *more: str, stdin: str = "") -> list[str]:
        words = ("--bootstrap-server", servers, "--topic", topic, config_option, settings, *more)
        done = subprocess.run(
            java_programs.command(f"org.apache.kafka.tools.{main}", *words, options=options),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patient_s(SECONDS_MAX),
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout.split()

    run(
        "ConsoleProducer",
        "--command-config",
        *("--request-timeout-ms", "60000"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    ends = ("--max-messages", str(COUNT), "--timeout-ms", "120000")
    read = run("consumer.ConsoleConsumer", "--command-config", "--from-beginning", *ends)
    assert read == lines
    group = ("--group", fresh_name("share"))
    shared = run("consumer.ConsoleShareConsumer", "--command-config", *group, *ends)
    assert sorted(shared) == sorted(lines)


@pytest.mark.deep
def test_aiokafka(front: Front, kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("aiokafka")
    create_topic(kafka.bootstrap_servers, topic)

    async def main() -> None:
        tls: dict[str, Any] = {
            "bootstrap_servers": front.mutual,
            "security_protocol": "SSL",
            "ssl_context": front.authority.trusting(front.client),
        }
        async with AIOKafkaProducer(**tls) as producer:
            for number in range(COUNT):
                await producer.send_and_wait(topic, f"{number}".encode())
        consumer = AIOKafkaConsumer(
            topic, group_id=fresh_name("group"), auto_offset_reset="earliest", **tls
        )
        async with consumer, asyncio.timeout(patient_s(SECONDS_MAX)):
            read = [(await consumer.getone()).value for _ in range(COUNT)]
        assert read == [f"{number}".encode() for number in range(COUNT)]

    asyncio.run(main())
