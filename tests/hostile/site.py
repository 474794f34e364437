"""The node under attack, its other clients, and the measurements of both."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Self

import psutil

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import start_child, stop_child, wait_until
from tests.bench.freezes import FreezeWatch
from tests.hostile.attacks import ATTACKS, OPEN_FILES_MAX
from tests.hostile.measured import Measured, Stamped, figures, pairs
from tests.hostile.target import Target
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.kafka import create_topic

REST_S = 5.0  # before each attack
AFTER_S = 5.0  # watched at least so long after it
CLIENT_S_MAX = 120.0
SAMPLE_S = 0.05
VICTIMS = "victims"


class Site:
    """One Kafka and one gateway with its defaults, but for groups that start at the beginning."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kafka = KafkaCluster(1, share_groups=False, directory=directory / "kafka")
        self._stack = ExitStack()
        self._rounds = 0

    def __enter__(self) -> Self:
        self._stack.enter_context(self.kafka)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attacked(self, attack: str, seconds: float) -> Measured:
        """A fresh gateway, its clients at rest, the attack, and the time after it."""
        self._rounds += 1
        directory = self.directory / f"{self._rounds:02}-{attack}"
        group = {"match": "*", "auto_offset_reset": "earliest"}
        gateway = GatewayProcess(
            directory,
            self.kafka.bootstrap_servers,
            groups=[group],
            open_files_max=OPEN_FILES_MAX.get(attack),
        )
        victims = f"victims-{self._rounds}"
        create_topic(self.kafka.bootstrap_servers, victims, partitions=4)
        create_topic(
            self.kafka.bootstrap_servers,
            f"attacked-{self._rounds}",
            config={"max.message.bytes": "100000000"},
        )
        target = Target(
            gateway.bootstrap,
            gateway.address_of(1),
            gateway.admin,
            self.kafka.bootstrap_servers,
            f"attacked-{self._rounds}",
        )
        with gateway:
            return _Round(directory, gateway, target, victims).measured(attack, seconds)


class _Round:
    def __init__(
        self, directory: Path, gateway: GatewayProcess, target: Target, victims: str
    ) -> None:
        self.directory = directory
        self.gateway = gateway
        self.target = target
        self.victims = victims
        self._over = threading.Event()
        self._rss_mib: list[tuple[float, float]] = []  # when, how much
        self._health: Counter[str] = Counter()

    def measured(self, attack: str, seconds: float) -> Measured:
        whole_s = REST_S + seconds + AFTER_S
        watch = threading.Thread(target=self._watch, daemon=True)
        with FreezeWatch() as freezes:
            probe = self._child("probe", self.gateway.bootstrap, str(whole_s + CLIENT_S_MAX))
            victim = self._child(
                "victim", self.gateway.bootstrap, "victims", self.victims, str(CLIENT_S_MAX)
            )
            try:
                log = self.directory / "victim.log"
                wait_until(
                    lambda: log.exists() and "ready" in log.read_text(),
                    what="the victim's first record",
                    deadline_s=30.0,
                )
                watch.start()
                rested_ns = time.monotonic_ns()
                time.sleep(REST_S)
                warned = self._warnings()
                began_ns = time.monotonic_ns()
                did = self._attack(attack, seconds)
                ended_ns = time.monotonic_ns()
                time.sleep(AFTER_S)
            finally:
                stop_child(probe)
                stop_child(victim)
                self._over.set()
        probed = pairs(self.directory / "probe.ns", interleaved=True)
        lived = pairs(self.directory / "victim.ns", interleaved=False)
        frozen = freezes.spans()
        rest, during = (rested_ns, began_ns), (began_ns, ended_ns)
        _, rest_p99_ms, _ = figures(lived, rest, frozen)
        p50_ms, p99_ms, _ = figures(lived, during, frozen)
        return Measured(
            attack=attack,
            did=did,
            stall_ms=figures(probed, during, frozen)[2],
            rest_stall_ms=figures(probed, rest, frozen)[2],
            rss_mib=max((mib for _, mib in self._rss_mib), default=0.0),
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            rest_p99_ms=rest_p99_ms,
            evicted=self._evicted(),
            warnings=self._warnings() - warned,
            health=", ".join(f"{count} x {said}" for said, count in self._health.most_common(2)),
            at_rest_again_s=self._at_rest_again_s(lived, ended_ns, rest_p99_ms),
        )

    def _child(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        file = self.directory / f"{module}.ns"
        command = [sys.executable, "-m", f"tests.hostile.{module}", *arguments, str(file)]
        return start_child(command, log=self.directory / f"{module}.log", cwd=REPOSITORY)

    def _attack(self, attack: str, seconds: float) -> str:
        assert attack in ATTACKS, attack
        command = [sys.executable, "-m", "tests.hostile.attacks", attack, str(seconds)]
        done = subprocess.run(
            [*command, json.dumps(asdict(self.target))],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=seconds + CLIENT_S_MAX,
            check=False,
        )
        return done.stdout.strip() or f"failed: {done.stderr.strip().splitlines()[-1:]}"

    def _watch(self) -> None:
        process = psutil.Process(self.gateway.pid)
        looked = 0.0
        while not self._over.wait(SAMPLE_S):
            now = time.monotonic()
            try:
                self._rss_mib.append((now, process.memory_info().rss / (1 << 20)))
            except psutil.Error:
                self._health["the node is gone"] += 1
                return
            if now - looked >= 1.0:
                looked = now
                self._health[self._asked_health()] += 1

    def _asked_health(self) -> str:
        try:
            with urllib.request.urlopen(f"http://{self.gateway.admin}/health", timeout=5) as answer:
                return str(json.load(answer)["status"])
        except urllib.error.HTTPError as error:
            return str(json.load(error)["status"])
        except OSError as error:
            return f"no answer ({error})"

    def _evicted(self) -> int:
        """Of the victims' group; the attacker's own members may go."""
        return sum(
            "member_evicted" in line and "group='victims'" in line
            for line in self.gateway.log_text().splitlines()
        )

    def _warnings(self) -> int:
        log = self.gateway.log_text()
        return log.count("level='warning'") + log.count("level='error'")

    def _at_rest_again_s(self, lived: Stamped, ended_ns: int, rest_p99_ms: float) -> float:
        """From the end of the attack to the last record that took longer than it does at rest."""
        late = [
            at + age
            for at, age in zip(*lived, strict=True)
            if at + age > ended_ns and age > 10e6 * rest_p99_ms
        ]
        return max(0.0, (max(late) - ended_ns) / 1e9) if late else 0.0
