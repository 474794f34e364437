"""The node under attack and its other clients: one Kafka for all attacks, a fresh node for each."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from gateway.config.groups import GroupSection
from gateway.embedded.kafka import QUICK_JVM, KafkaCluster
from gateway.embedded.process import free_ports, stop_child
from tests.hostile.attacks import Row
from tests.hostile.measured import Measured
from tests.hostile.round import BROKER, DIRECT, Round, started, wait_for_first_record
from tests.hostile.target import ACKED_ON_EVICT, AT_LATEST, Target
from tests.rig.gateway_process import GatewayProcess
from tests.rig.identified_node import (
    OWN_IDENTITY,
    Issuer,
    add_users,
    guarded_listener,
    replace,
    sasl_listener,
    write_users,
)
from tests.rig.kafka import create_topic

HEAP = "-Xmx1536m"  # a batch of 90 MB is held several times by the broker
# A compiler at work for half a minute would be in the latencies at rest.
JVM = (*QUICK_JVM, HEAP)
PARTITIONS = 4  # of a victim's topic
ALL_S_MAX = 1_800.0  # of all attacks
# All defaults, but that most groups begin with the first record.
GROUPS: tuple[dict[str, Any], ...] = (
    {"match": f"{AT_LATEST}*"},
    {
        "match": f"{ACKED_ON_EVICT}*",
        "auto_offset_reset": "earliest",
        "on_evict": "ack",
        "lock_duration_ms": 2_000,
    },
    {
        "match": "*",
        "auto_offset_reset": "earliest",
        "assignment_interval_ms": GroupSection().assignment_interval_ms,  # unlike in other tests
    },
)


LOGIN = ("victim", "of-the-gateway")


def _listener(directory: Path) -> dict[str, Any]:
    """Where the gateway authenticates clients; the victim has the gateway's own user at Kafka."""
    directory.mkdir(parents=True)
    name, password = LOGIN
    users, rules, keys = (directory / name for name in ("users.yaml", "identities.yaml", "jwks"))
    write_users(users, {name: password})
    found = {"principal": name, "identity": name}
    replace(rules, {"rules": [found], "identities": {name: OWN_IDENTITY}})
    keys.write_text(Issuer().key_set())
    return sasl_listener(users, rules, keys)


class Site:
    def __init__(self, directory: Path, kafka: KafkaCluster | None = None) -> None:
        """`kafka`: one that runs already."""
        self.directory = directory
        first = free_ports(3)
        plain, controller, guarded = first, first + 1, first + 2
        self._guarded = f"127.0.0.1:{guarded}"  # its listener with SASL
        self.kafka = kafka or KafkaCluster(
            1,
            directory=directory / "kafka",
            jvm=JVM,
            properties=guarded_listener(plain, controller, guarded),
            ports=(plain,),
        )
        self._starts_kafka = kafka is None
        self._stack = ExitStack()
        self._rounds = 0

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            if self._starts_kafka:
                starting.enter_context(self.kafka)
            upstream = self.kafka.bootstrap_servers
            if self._starts_kafka:
                add_users(upstream, {OWN_IDENTITY["username"]: OWN_IDENTITY["password"]})
            create_topic(upstream, DIRECT, partitions=PARTITIONS)
            for client in (
                started(self.directory, "probe", BROKER, ALL_S_MAX, upstream),
                started(self.directory, "victim", DIRECT, ALL_S_MAX, upstream, DIRECT, DIRECT),
            ):
                starting.callback(stop_child, client)
            wait_for_first_record(self.directory, DIRECT)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attacked(self, row: Row, seconds: float) -> Measured:
        """A fresh gateway, its clients at rest, the attack, and the time until all is at rest."""
        self._rounds += 1
        directory = self.directory / f"{self._rounds:02}-{row.name}"
        upstream = self.kafka.bootstrap_servers
        assert self._starts_kafka or not row.logins, "the broker has no listener with SASL"
        listeners = [_listener(directory)] if row.logins else []
        gateway = GatewayProcess(
            directory,
            self._guarded if row.logins else upstream,
            sasl=OWN_IDENTITY if row.logins else None,
            listeners=listeners,
            groups=GROUPS,
            limits=row.limits,
            open_files_max=row.open_files_max,
            stderr=row.stderr,
        )
        door = (gateway.bootstrap, gateway.address_of(1))
        if listeners:
            first, base = listeners[0]["bootstrap_port"], listeners[0]["port_base"]
            door = (f"127.0.0.1:{first}", f"127.0.0.1:{base + 1}")
        victims, attacked = f"victims-{self._rounds}", f"attacked-{self._rounds}"
        create_topic(upstream, victims, partitions=PARTITIONS)
        create_topic(upstream, attacked, config={"max.message.bytes": "100000000"})
        with gateway:
            broker = self.kafka.brokers[0].child
            assert broker is not None, "it runs"
            target = Target(
                bootstrap=door[0],
                broker=door[1],
                login=LOGIN if row.logins else (),
                admin=gateway.admin,
                upstream=upstream,
                topic=attacked,
                node_pid=gateway.pid,
                broker_pid=broker.pid,
                directory=str(directory),
            )
            try:
                return Round(directory, gateway, target, victims, self.directory).measured(
                    row, seconds
                )
            finally:
                broker.send_signal(signal.SIGCONT)  # an attack may have stopped it
