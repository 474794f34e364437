"""Where a suite finds its Kafka: a fresh cluster, direct or with a fresh gateway before it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gateway.embedded.jars import KAFKA_VERSION, kafka_libs
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.certificates import EC, Authority, Issued
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import NEWEST as NEWEST

Way = Literal["direct", "through"]
WAYS: tuple[Way, Way] = ("direct", "through")
# Beside what each suite asks for: nothing here is quicker than Kafka's own defaults.
USUAL = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "true"}


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    kafka: str  # its version
    brokers: int = 1
    tls: bool = False

    def __str__(self) -> str:
        count = "1 broker" if self.brokers == 1 else f"{self.brokers} brokers"
        return f"Kafka {self.kafka}, {count}{', TLS' if self.tls else ''}"


@dataclass(frozen=True, slots=True)
class Front:
    """What a suite is told."""

    setting: Setting
    bootstrap: str  # one address
    directory: Path
    ca_file: Path | None = None  # clients speak TLS
    cluster: KafkaCluster | None = field(default=None, repr=False)  # only for suites that break it
    gateway: GatewayProcess | None = field(default=None, repr=False)

    @property
    def way(self) -> Way:
        return "direct" if self.gateway is None else "through"

    def java(self) -> dict[str, str]:
        """Settings of a Java client that say how to connect, without where."""
        if self.ca_file is None:
            return {}
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
        }

    def properties(self, name: str, settings: Mapping[str, object]) -> Path:
        """A file of that name with settings of Java's."""
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def java_properties(self) -> Path:
        """A file for the tools' `--command-config` and its older names."""
        return self.properties("client", {"client.id": "conformance", **self.java()})

    def librdkafka(self) -> dict[str, str]:
        """Settings of a librdkafka client."""
        own = {"bootstrap.servers": self.bootstrap}
        if self.ca_file is not None:
            own |= {"security.protocol": "ssl", "ssl.ca.location": str(self.ca_file)}
        return own


@contextmanager
def fresh(
    setting: Setting,
    way: Way,
    directory: Path,
    properties: Mapping[str, str],
    groups: Sequence[Mapping[str, object]] = (),
) -> Iterator[Front]:
    """`properties`: of the brokers, which a suite asks for; `groups`: of keyway.yaml."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    authority = Authority(directory / "authority") if setting.tls else None
    own = authority.issue("server", key=EC) if authority is not None else None
    with ExitStack() as stack:
        ports = free_ports(2 * setting.brokers)
        plain = tuple(range(ports, ports + setting.brokers))
        secure = tuple(port + setting.brokers for port in plain)
        cluster = KafkaCluster(
            setting.brokers,
            properties={**USUAL, **properties},
            ports=plain,
            libs=None if setting.kafka == KAFKA_VERSION else kafka_libs(setting.kafka),
            tls=None if own is None else (_store(own), secure),
        )
        stack.enter_context(cluster)
        ca_file = authority.ca_file if authority is not None else None
        if way == "direct":
            port = secure[0] if setting.tls else plain[0]
            yield Front(setting, f"127.0.0.1:{port}", directory, ca_file, cluster)
            return
        listeners = []
        tls = free_ports(setting.brokers + 2)
        if own is not None:
            listeners = [
                {
                    "name": "tls",
                    "bootstrap_port": tls,
                    "port_base": tls + 1,
                    "tls": own.as_options(),
                }
            ]
        gateway = GatewayProcess(
            directory / "gateway",
            cluster.bootstrap_servers,
            groups=[dict(group) for group in groups],
            listeners=listeners,
            afresh=True,
        )
        stack.enter_context(gateway)
        bootstrap = f"127.0.0.1:{tls}" if setting.tls else gateway.bootstrap
        yield Front(setting, bootstrap, directory, ca_file, cluster, gateway)


def _store(issued: Issued) -> Path:
    store = issued.cert_file.with_suffix(".store")
    store.write_text(issued.key_file.read_text() + issued.cert_file.read_text())
    return store
