"""The port of a service's metrics, and its waits."""

from __future__ import annotations

import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from gateway.embedded.process import free_ports
from keyway.clusters.config import ConfigError
from keyway.service import Backoff, serve_metrics


def test_metrics_on_loopback() -> None:
    registry = CollectorRegistry()
    Counter("rounds", "Rounds", registry=registry).inc()
    port = free_ports(1)
    serve_metrics(port, registry)
    assert "rounds_total 1.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"metrics_port {port}: Address already"):
            serve_metrics(port, CollectorRegistry())


def test_the_wait_doubles_up_to_its_limit_until_something_works() -> None:
    backoff = Backoff(1.0, 15.0)
    assert [backoff.failed() for _ in range(6)] == [1, 2, 4, 8, 15, 15]
    backoff.worked()
    assert backoff.failed() == 1
    for _ in range(5_000):  # a cluster that is away for days
        assert backoff.failed() <= 15
