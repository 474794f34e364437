"""The port of the metrics of links."""

from __future__ import annotations

import socket

import httpx
import pytest

from gateway.embedded.process import free_ports
from keyway.clusters.config import ConfigError
from spark.links.metrics import serve_metrics


def test_served_on_loopback() -> None:
    port = free_ports(1)
    serve_metrics(port, list)
    assert "keyway_distribution_link_running" in httpx.get(f"http://127.0.0.1:{port}/metrics").text


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"messages.metrics_port {port}: Address already"):
            serve_metrics(port, list)
