"""A node that Kafka alone does not reach lives on in Redis, and another one serves its clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.chaos.nodes.load import Load
from tests.chaos.nodes.proxy import Proxies
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.share_members import ShareHost
from tests.rig.kafka import NEVER_KILLED
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]
PROXY = "127.0.0.5"
WAY = "Kafka"


@dataclass(frozen=True)
class Site:
    """One Kafka with two addresses: its own, and another that can fall silent."""

    kafka: KafkaCluster
    proxies: Proxies
    by_proxy: str


@pytest.fixture
def site() -> Iterator[Site]:
    first = free_ports(3)
    plain, controller, proxied = first, first + 1, first + 2
    listeners = f"CLIENT://127.0.0.1:{plain},PROXIED://127.0.0.1:{proxied}"
    properties = {
        **NEVER_KILLED,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{plain},PROXIED://{PROXY}:{proxied}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
    }
    proxies = Proxies()
    with KafkaCluster(1, properties=properties, ports=(plain,)) as kafka, proxies.running():
        proxies.open(WAY, {(PROXY, proxied): ("127.0.0.1", proxied)})
        yield Site(kafka, proxies, f"{PROXY}:{proxied}")


def test_another_node_gets_its_virtual_brokers_and_it_gets_them_back(
    site: Site,
    fresh_name: Callable[[str], str],
    java_host: ShareHost,
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    nodes = Nodes(tmp_path, site.kafka, "ab", slots=2, upstreams={"a": site.by_proxy})
    own = site.kafka.bootstrap_servers
    load = Load(own, fresh_name("orders"), brokers=1, partitions=8, per_second=10)
    with nodes.running("ab"):
        load.join((java_host, librdkafka_host), nodes.bootstrap, fresh_name("group"))
        with load.running():
            load.wait_for_more(5)
            site.proxies.silence(WAY)
            wait_until(
                lambda: set(nodes.owners().values()) == {"b"},
                what="that the other node owns all",
                deadline_s=60,
            )
            load.wait_for_more(5)
            site.proxies.speak(WAY)
            nodes.wait_for_owners("ab")
            load.wait_for_more(5)
        verdict = load.finish()
    assert verdict.passed, verdict.faults
    for node in nodes.nodes.values():
        assert not re.search(r"handler_failed|dispatcher_bug|Traceback", node.log_text())
