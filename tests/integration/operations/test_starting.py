"""A node that cannot start says so in one line that names the option; addresses of every kind."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.embedded.kafka import KafkaCluster
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import health
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

END_S_MAX = 30.0


def changed(node: GatewayProcess, section: str, **options: Any) -> None:
    """Sets options of its keyway.yaml."""
    settings = yaml.safe_load(node.config.read_text())
    settings[section] |= options
    node.config.write_text(yaml.safe_dump(settings))


@pytest.mark.parametrize(
    ("section", "option", "below", "named"),
    [
        ("listen", "bootstrap_port", 0, "(listen.host, listen.bootstrap_port)"),
        ("listen", "port_base", 1, "(listen.host, listen.port_base + 1)"),
        ("admin", "port", 0, "(admin.host, admin.port)"),
    ],
)
def test_a_port_that_is_taken(
    tmp_path: Path, kafka: KafkaCluster, section: str, option: str, below: int, named: str
) -> None:
    node = GatewayProcess(tmp_path, kafka.bootstrap_servers, afresh=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        changed(node, section, **{option: port - below})
        node.spawn()
        assert node.child is not None
        assert node.child.wait(END_S_MAX) == 2
    assert node.log_text().splitlines()[-1] == (
        f"keyway: cannot listen on 127.0.0.1:{port} {named}: Address already in use"
    )
    assert "Traceback" not in node.log_text()


@pytest.mark.deep
def test_rest_on_ipv6(tmp_path: Path, kafka: KafkaCluster) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    node = GatewayProcess(tmp_path, kafka.bootstrap_servers, afresh=True)
    changed(node, "admin", host="::1")
    node.admin = node.admin.replace("127.0.0.1", "[::1]")
    with node:
        wait_until(lambda: health(node)[1]["status"] == "up", what="up", deadline_s=END_S_MAX)


def test_waiting_for_kafka_names_the_option_and_can_be_ended(tmp_path: Path) -> None:
    node = GatewayProcess(tmp_path, "127.0.0.1:1", afresh=True)
    node.spawn()
    assert node.child is not None
    wait_until(
        lambda: "waiting_for_upstream" in node.log_text(),
        what="a node that waits",
        deadline_s=END_S_MAX,
    )
    node.child.send_signal(signal.SIGINT)
    assert node.child.wait(END_S_MAX) == 0
    (line,) = [text for text in node.log_text().splitlines() if "waiting_for_upstream" in text]
    for said in ("127.0.0.1:1", "upstream.bootstrap_servers", "--upstream", "Ctrl-C"):
        assert said in line
    assert "event='stopped'" in node.log_text()
