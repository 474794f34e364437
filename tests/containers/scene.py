"""docker-compose.yml, up: flights through the gateway, a kill, health, users, Spark's count."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from confluent_kafka import ShareConsumer
from rich import print as show

from demo.flights import PARTITIONS, create_topic, load, per_carrier, read_flights
from tests.containers.podman import Podman
from tests.rig.gateway_process import REPOSITORY

FRONT, ADMIN = "127.0.0.1:9192", "127.0.0.1:9180"
TOPIC, GROUP = "flights", "containers"
FLIGHTS = 336_776
UP_S_MAX = 600.0
RESTARTED_S_MAX = 120.0
READ_S_MAX = 1_200.0
PROJECT = "keyway-campaign"
ENGINE = ("--in-pod", "false", "--profile", "jobs")
SERVICES = ("kafka", "redis", "gateway")


class Scene:
    """Ends what it started, also when it fails."""

    def __init__(
        self, podman: Podman, work: Path, images: Mapping[str, str], compose: Path
    ) -> None:
        self._podman, self._work, self._images = podman, work, images
        self._command = compose

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        override = yaml.safe_load((Path(__file__).parent / "host-network.yml").read_text())
        targets = {"gateway": "gateway", "flights": "spark", "spark": "spark"}
        for service, target in targets.items():
            if target in self._images:
                override["services"][service]["image"] = self._images[target]
        (self._work / "override.yml").write_text(yaml.safe_dump(override))
        self._compose("down", "--volumes", check=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is not None:
            for service in SERVICES:
                said = self._podman.run("logs", "--tail", "15", self._name(service), check=False)
                show(f"--- {service}\n{said.stdout}{said.stderr}")
        self._compose("down", "--volumes", check=False)

    def play(self) -> None:
        """Raises AssertionError."""
        for service in SERVICES:
            self._compose("up", "--detach", "--no-build", "--no-deps", service)
            took = self._healthy(service)
            show(f"✓ {service}: healthy after {took:.0f} s")
        self._nothing_is_root()
        if "spark" in self._images:
            self._compose("run", "--rm", "--no-deps", "-T", "flights")
        else:
            create_topic(FRONT, TOPIC, PARTITIONS)
            load(FRONT, TOPIC, read_flights(), lambda _: None)
        show(f"✓ flights: {FLIGHTS:,} loaded through the gateway")
        seen, again = self._read_while_killed()
        assert len(seen) == FLIGHTS, f"{len(seen):,} of {FLIGHTS:,} records came"
        show(f"✓ {len(seen):,} read by a share consumer, 0 lost, {again:,} again")
        if "spark" in self._images:
            self._counted_by_spark()

    def _counted_by_spark(self) -> None:
        said = self._compose("run", "--rm", "--no-deps", "-T", "spark").stdout
        expected = per_carrier(read_flights())
        found = {name: f'"{name}": {count}' in said for name, count in expected.items()}
        wrong = [name for name, right in found.items() if not right]
        assert not wrong, f"Spark counts otherwise: {', '.join(wrong)} in {said[-500:]}"
        show(f"✓ Spark: {len(expected)} carriers, as in the data set")

    def _nothing_is_root(self) -> None:
        for service in SERVICES:
            user = self._podman.run("exec", self._name(service), "id", "-u").stdout.strip()
            assert user != "0", f"{service} runs as root"
            show(f"✓ {service}: uid {user}")

    def _read_while_killed(self) -> tuple[set[tuple[int | None, int | None]], int]:
        """Places of the records that came, and how many came again."""
        consumer = ShareConsumer({"bootstrap.servers": FRONT, "group.id": GROUP, "log_level": 0})
        consumer.subscribe([TOPIC])
        seen: set[tuple[int | None, int | None]] = set()
        again, killed, end = 0, False, time.monotonic() + READ_S_MAX
        try:
            while len(seen) < FLIGHTS and time.monotonic() < end:
                for message in consumer.poll(timeout=1.0):
                    place = (message.partition(), message.offset())
                    again += place in seen
                    seen.add(place)
                if not killed and len(seen) > FLIGHTS // 3:
                    killed = True
                    self._kill_gateway()
        finally:
            consumer.close()
        return seen, again

    def _kill_gateway(self) -> None:
        """As a crash: `restart: unless-stopped` brings it back."""
        name = self._name("gateway")
        first = self._podman.run("inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
        os.kill(int(first), signal.SIGKILL)
        began = time.monotonic()
        while self._podman.run("inspect", "--format", "{{.State.Pid}}", name).stdout.strip() in (
            first,
            "0",
        ):
            if time.monotonic() - began > RESTARTED_S_MAX:
                raise AssertionError(f"the gateway was not started again: {self._why_not(name)}")
            time.sleep(0.2)
        self._healthy("gateway")
        show(f"✓ gateway: killed, healthy again after {time.monotonic() - began:.0f} s", flush=True)

    def _why_not(self, name: str) -> str:
        """The state of a container that podman left lying, its events, and what podman says when it
        is asked to do again what conmon asked it at the container's end.
        """
        shown = "{{.State.Status}} ({{.State.ExitCode}}), {{.RestartCount}} restarts"
        state = self._podman.run("inspect", "--format", shown, name).stdout.strip()
        events = ("events", "--stream=false", "--since", f"{RESTARTED_S_MAX + 60:.0f}s")
        which = ("--filter", f"container={name}", "--format", "{{.Time}} {{.Status}}")
        told = self._podman.run(*events, *which, check=False).stdout
        cleanup = ("--log-level", "debug", "container", "cleanup", name)
        said = self._podman.run(*cleanup, check=False, seconds_max=120).stderr
        return f"{state}; events: {told[-1_000:]}; cleanup: {said[-3_000:]}"

    def _healthy(self, service: str) -> float:
        """Seconds until its own health check says so."""
        began = time.monotonic()
        while True:
            name = self._name(service)
            check = self._podman.run("healthcheck", "run", name, check=False, seconds_max=120)
            if check.returncode == 0:
                break
            said = (check.stdout + check.stderr)[-300:]
            assert time.monotonic() - began < UP_S_MAX, f"{service} is not healthy: {said}"
            time.sleep(1)
        if service == "gateway":
            with urllib.request.urlopen(f"http://{ADMIN}/health/ready", timeout=10) as answer:
                assert answer.status == 200
        return time.monotonic() - began

    def _name(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def _compose(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        files = ("-f", "docker-compose.yml", "-f", str(self._work / "override.yml"))
        return self._podman.ran(
            (str(self._command), *ENGINE, "-p", PROJECT, *files, *words),
            cwd=REPOSITORY,
            check=check,
        )
