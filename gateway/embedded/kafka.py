"""A real Kafka from its jars: KRaft brokers on loopback, for the demo, tests and benchmarks.

`KafkaCluster(1)` is one process that is broker and controller. With an odd number of three or more
brokers every one is a controller too; with two, only the first is, so that the second can be killed
and the cluster goes on. Data lives in a folder of its own and is removed at `stop()`, unless the
caller named the folder.
"""

from __future__ import annotations

import base64
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.embedded.jars import build_dir, java, kafka_classpath, kafka_libs, shared_classes
from gateway.embedded.process import (
    SetupError,
    free_ports,
    kill_child,
    require_free,
    start_child,
    stop_child,
    wait_until,
)

__all__ = ["KafkaBroker", "KafkaCluster", "java", "kafka_classpath", "kafka_libs"]

READY_S_MAX = 300.0  # three seconds on a good machine
# A quick start matters more than peak speed: no C2, shared class data. Benchmarks pass TUNED_JVM
# instead.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+UseSerialGC")
TUNED_JVM = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
HEAP = ("-Xms128m", "-Xmx512m")

_LOG4J = """\
Configuration:
  status: "OFF"
  Appenders:
    File:
      name: "file"
      fileName: "{path}"
      PatternLayout: {{pattern: "%d %p %c: %m%n"}}
  Loggers:
    Root:
      level: "{level}"
      AppenderRef: {{ref: "file"}}
"""


@dataclass(slots=True)
class KafkaBroker:
    """One broker process. `start` returns at once; `KafkaCluster.wait_ready` waits for it."""

    node_id: int
    port: int
    directory: Path  # server.properties, data/, server.log and stdout.log
    jvm: tuple[str, ...] = QUICK_JVM
    libs: Path | None = None  # the jars of another version than the usual one
    child: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def start(self) -> None:
        """Raises SetupError if the port is taken."""
        assert not self.running, f"broker {self.node_id} runs already"
        require_free(self.port, f"Kafka broker {self.node_id}", "choose another port")
        log4j = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.yaml'}"
        command = [java(), *HEAP, *self.jvm, log4j, "-Djava.awt.headless=true"]
        command += [*_classes(self.libs), "kafka.Kafka"]
        command += [str(self.directory / "server.properties")]
        self.child = start_child(command, log=self.directory / "stdout.log")

    def stop(self) -> None:
        """SIGTERM: a controlled shutdown; SIGKILL if that takes longer than 15 s."""
        if self.child is not None:
            stop_child(self.child, grace_s=15)

    def kill(self) -> None:
        """SIGKILL, as a crash. Data stays."""
        if self.child is not None:
            kill_child(self.child)

    def last_words(self) -> str:
        """The end of the process's output or log: the reason when it did not come up."""
        lines: list[str] = []
        for name in ("server.log", "stdout.log"):
            path = self.directory / name
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()
        bad = [line for line in lines if "ERROR" in line or "Exception" in line or "FATAL" in line]
        return " | ".join((bad or lines)[-3:])


class KafkaCluster:
    """`brokers` KRaft brokers with ids 1, 2, …, replication factor of internal topics = their
    number.

    `properties` go into every server.properties and win over those written there; `share_groups`
    formats with Kafka's own share groups on or off, or with that share.version; `ports` fixes the
    client ports (one per broker), else free ones are taken; `libs` are jars of another version
    (`kafka_libs`); `tls` adds a listener for clients: a PEM store with key and certificate, and a
    port per broker.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        share_groups: bool | int = True,
        properties: Mapping[str, str] | None = None,
        ports: tuple[int, ...] = (),
        directory: Path | None = None,
        jvm: tuple[str, ...] = QUICK_JVM,
        libs: Path | None = None,
        tls: tuple[Path, tuple[int, ...]] | None = None,
    ) -> None:
        assert brokers >= 1
        assert len(ports) in (0, brokers)
        self.share_groups = share_groups
        self._keep = directory is not None
        self.directory = directory or _new_directory()
        self._cluster_id = _new_id()
        taken = free_ports(2 * brokers)
        client_ports = ports or tuple(range(taken, taken + brokers))
        self._controller_ports = tuple(range(taken + brokers, taken + 2 * brokers))
        self._controllers = brokers if brokers % 2 and brokers > 1 else 1
        self._properties = dict(properties or {})
        self._tls = tls
        self._formatted = False
        self.brokers = [
            KafkaBroker(at + 1, client_ports[at], self.directory / f"broker-{at + 1}", jvm, libs)
            for at in range(brokers)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> KafkaCluster:
        """Formats the data folders (once), starts every broker and waits until all of them see each
        other.

        Raises SetupError with the broker's last words if one ends, or is not ready in READY_S_MAX.
        """
        try:
            if not self._formatted:
                self._format()
            for broker in self.brokers:
                if not broker.running:
                    broker.start()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def wait_ready(self) -> None:
        """Waits until every running broker answers Metadata with all running brokers in it. Raises
        SetupError.
        """
        up = [broker for broker in self.brokers if broker.running]

        def ready() -> bool:
            for broker in up:
                if not broker.running:
                    raise SetupError(
                        f"Kafka broker {broker.node_id} ended while starting: {broker.last_words()}"
                    )
            return all(brokers_seen(broker.port) >= len(up) for broker in up)

        try:
            wait_until(ready, what="Kafka ready", deadline_s=READY_S_MAX)
        except TimeoutError as error:
            words = "; ".join(broker.last_words() for broker in up)
            raise SetupError(f"Kafka did not answer within {READY_S_MAX:.0f} s: {words}") from error

    def restart(self, broker: KafkaBroker | None = None) -> None:
        """Stops (unless killed already) and starts one broker, or all; same ports and data."""
        chosen = [broker] if broker is not None else self.brokers
        for one in chosen:
            one.stop()
        for one in chosen:
            one.start()
        self.wait_ready()

    def stop(self) -> None:
        """Ends every process by its id and removes the data, unless the caller named the folder."""
        for broker in reversed(self.brokers):  # The controller last: the others tell it they leave.
            broker.stop()
        self._remove()

    def kill(self) -> None:
        """SIGKILL to every broker; data is removed as by `stop`."""
        for broker in self.brokers:
            broker.kill()
        self._remove()

    def _remove(self) -> None:
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Without the orderly way out where nobody keeps the data: it takes the tests a second."""
        self.stop() if self._keep else self.kill()

    def _format(self) -> None:
        """Writes what `kafka-storage format` would, without a JVM for each broker."""
        formatted = self._formatted_storage()
        for broker in self.brokers:
            data = broker.directory / "data"
            try:
                shutil.copytree(formatted, data)
            except FileExistsError as error:
                raise SetupError(f"{data} has the data of an earlier Kafka") from error
            (broker.directory / "log4j2.yaml").write_text(
                _LOG4J.format(path=broker.directory / "server.log", level="WARN")
            )
            properties = self._server_properties(broker)
            (broker.directory / "server.properties").write_text(_written(properties))
            ids = {"version": "1", "cluster.id": self._cluster_id, "node.id": str(broker.node_id)}
            (data / "meta.properties").write_text(_written(ids | {"directory.id": _new_id()}))
        self._formatted = True

    def _formatted_storage(self) -> Path:
        """The data folder with the versions of Kafka's features, as the first cluster with these
        jars was formatted. It is kept: nothing in it is of one cluster. Raises SetupError.
        """
        broker, share = self.brokers[0], f"share.version={int(self.share_groups)}"
        jar = min((broker.libs or kafka_libs()).glob("kafka_2.13-*.jar"))
        kept = build_dir() / "kafka" / f"{jar.stem}-{share}"
        if kept.exists():
            return kept
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as name:
            directory = Path(name)
            settings, log, data = directory / "settings", directory / "log", directory / "data"
            settings.write_text(_written(self._server_properties(broker) | {"log.dirs": str(data)}))
            command = [java(), "-Xmx128m", *QUICK_JVM, *_classes(broker.libs)]
            command += ["-Dlog4j2.level=OFF", "kafka.tools.StorageTool", "format"]
            # One argument: one cluster id in 64 starts with "-".
            command += [f"--cluster-id={self._cluster_id}", "-c", str(settings), "--feature", share]
            if start_child(command, log=log).wait(READY_S_MAX) != 0:
                words = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
                raise SetupError(f"Kafka's storage could not be formatted: {words}")
            # Kafka 4.4 has the versions in a snapshot of its metadata log, those before in a file.
            (data / "meta.properties").unlink()
            try:
                data.replace(kept)
            except OSError:
                if not kept.exists():  # else another process was quicker
                    raise
        return kept

    def _server_properties(self, broker: KafkaBroker) -> dict[str, str]:
        is_controller = broker.node_id <= self._controllers
        controller_port = self._controller_ports[broker.node_id - 1]
        listeners = f"CLIENT://127.0.0.1:{broker.port}"
        voters = ",".join(
            f"{at + 1}@127.0.0.1:{self._controller_ports[at]}" for at in range(self._controllers)
        )
        replicas = str(len(self.brokers))
        secure = {}
        if self._tls is not None:
            store, ports = self._tls
            listeners += f",SECURE://127.0.0.1:{ports[broker.node_id - 1]}"
            secure = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        written = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(broker.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners
            + (f",CONTROLLER://127.0.0.1:{controller_port}" if is_controller else ""),
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL",
            "inter.broker.listener.name": "CLIENT",
            "log.dirs": str(broker.directory / "data"),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Idle brokers share the cores with what is looked at: heartbeats and records that say
            # "nothing new" are a third of an idle broker's work, and nobody asks JMX.
            "broker.heartbeat.interval.ms": "1000",
            "broker.session.timeout.ms": "3000",
            "metadata.max.idle.interval.ms": "30000",
            "metric.reporters": "",
            "controlled.shutdown.enable": "true",
            # Fewer partitions than the default 50: each costs time at every start.
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
            "log.retention.ms": "-1",  # Test records with old timestamps must stay.
        }
        return written | secure | self._properties


def _classes(libs: Path | None) -> list[str]:
    """Options of a JVM: the class path, and the archive of its classes if they are the usual."""
    if libs is not None:
        return ["-cp", f"{libs}/*"]
    return [*shared_classes(), "-cp", kafka_classpath()]


def _written(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _new_id() -> str:
    """As Kafka writes its ids."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _new_directory() -> Path:
    parent = build_dir() / "kafka" / "run"
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=parent, prefix=time.strftime("%H%M%S-")))


def brokers_seen(port: int) -> int:
    """How many brokers a broker on `port` lists in Metadata v1; 0 if it does not answer."""
    body = struct.pack(">hhih6si", 3, 1, 1, 6, b"keyway", 0)  # no topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as line:
            line.sendall(struct.pack(">i", len(body)) + body)
            answer = line.makefile("rb").read(12)  # size, correlation id, number of brokers
    except OSError:
        return 0
    return int(struct.unpack(">i", answer[8:12])[0]) if len(answer) == 12 else 0
