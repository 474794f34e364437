"""What every service does: it ends at a signal, exposes its metrics, and waits longer after each
failure.
"""

from __future__ import annotations

import signal
import threading
import time

from prometheus_client import CollectorRegistry, start_http_server

from keyway import logs
from keyway.clusters.yaml_file import ConfigError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def started() -> threading.Event:
    """Sets up the service's logs. The event is set when a signal asks the service to end."""
    logs.configure()
    stop = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    return stop


def serve_metrics(port: int | None, registry: CollectorRegistry) -> None:
    """On loopback, for as long as the process lives. Raises ConfigError if the port is taken."""
    if port is None:
        return
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigError(f"metrics_port {port}: {error.strerror}") from error


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Backoff:
    """The wait after a failure: twice the one before, up to a limit."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.failures = 0

    def failed(self) -> float:
        """How many seconds to wait now."""
        self.failures += 1
        return min(self._first_s * 2.0 ** min(self.failures - 1, 32), self._most_s)

    def worked(self) -> None:
        self.failures = 0
