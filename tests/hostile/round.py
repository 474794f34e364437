"""One attack on one node: its clients at rest, the attack, and the time until all is at rest."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from gateway.embedded.process import kill_child, start_child, stop_child, wait_until
from tests.bench.freezes import FreezeWatch, Span
from tests.hostile.attacks import Row
from tests.hostile.measured import (
    ANSWERED_SHARE_MIN,
    JUDGED_MIN,
    P99_RATIO_MAX,
    PER_S,
    REST_S_MAX,
    STALL_MS_MAX,
    Latency,
    Measured,
    latency,
    pairs,
)
from tests.hostile.target import Target, health
from tests.rig.gateway_process import REPOSITORY, GatewayProcess

WARM_S = 0.5  # the victim's first records take longer
REST_S = 2.0  # before each attack
# Watched at least so long after it: members whose connection is gone are evicted after 3 s.
AFTER_S = 4.0
LOOK_S = 1.0  # at rest is a second without anything unusual
CLIENT_S_MAX = 300.0  # the largest crowds take two minutes to join on a busy machine
SAMPLE_S = 0.05
HEALTH_S = 0.5
CPU_SHARE_MORE = 0.15  # of a core, than before the attack
CONNECTIONS_MORE = 2  # the victim's client may have connected once more
VICTIMS = "victims"
# The clients beside an attack; each notes its latencies in a file of its own.
PROBE, BROKER, VICTIM, DIRECT = "probe", "broker", "victim", "direct"


@dataclass(frozen=True, slots=True)
class Rest:
    """Before the attack."""

    stall: Latency
    victim: Latency
    direct: Latency
    cpu_share: float  # of a core
    connections: int
    rss_mib: float


class Round:
    def __init__(
        self, directory: Path, gateway: GatewayProcess, target: Target, victims: str, site: Path
    ) -> None:
        """`victims` is the victim's topic; clients of the broker itself note their latencies in
        `site`.
        """
        self.directory = directory
        self.gateway = gateway
        self.target = target
        self.victims = victims
        self._notes = {PROBE: directory, VICTIM: directory, BROKER: site, DIRECT: site}
        self._freezes = FreezeWatch()
        self._ends = 0
        self._rss_mib = 0.0
        self._health: Counter[str] = Counter()
        self._asked_health = 0.0

    def measured(self, row: Row, seconds: float) -> Measured:
        with self._freezes, ExitStack() as children:
            node, login = self.target.bootstrap, self.target.login
            for client in (
                started(self.directory, "probe", PROBE, 2 * CLIENT_S_MAX, node, login=login),
                started(
                    self.directory,
                    "victim",
                    VICTIM,
                    2 * CLIENT_S_MAX,
                    node,
                    VICTIMS,
                    self.victims,
                    login=login,
                ),
            ):
                children.callback(stop_child, client)
            wait_for_first_record(self.directory, VICTIM)
            time.sleep(WARM_S)
            rest = self._at_rest(max(REST_S, row.seconds_min))
            warned, refused = self._warnings(), self._samples(row.bars.refusals)
            began_ns = time.monotonic_ns()
            did, failed = self._attack(row.name, max(seconds, row.seconds_min))
            ended_ns = time.monotonic_ns()
            grown = self._samples(row.bars.refusals)
            at_rest_again_s, unrest = self._until_rest(rest, row.bars.rest_health)
        frozen = self._freezes.spans()
        during = (began_ns, ended_ns)
        whole = (began_ns, ended_ns + int(at_rest_again_s * 1e9))
        return Measured(
            attack=row.name,
            did=did,
            failed=failed,
            seconds=(ended_ns - began_ns) / 1e9,
            stall=self._latency(PROBE, whole, frozen),
            rest_stall=rest.stall,
            broker=self._latency(BROKER, during, frozen),
            victim=self._latency(VICTIM, during, frozen),
            rest_victim=rest.victim,
            direct=self._latency(DIRECT, during, frozen),
            rest_direct=rest.direct,
            rss_mib=self._rss_mib,
            rest_rss_mib=rest.rss_mib,
            evicted=self._evicted(),
            ends=self._ends,
            warnings=self._warnings() - warned,
            health=dict(self._health.most_common()),
            refused={name: grown[name] - refused[name] for name in row.bars.refusals},
            at_rest_again_s=at_rest_again_s,
            unrest=unrest,
        )

    # ------------------------------------------------------------------------------------ clients

    def _latency(self, name: str, span: Span, frozen: list[Span]) -> Latency:
        return latency(pairs(_notes(self._notes[name], name)), span, frozen)

    def _attack(self, name: str, seconds: float) -> tuple[str, bool]:
        """Its deeds, or its last words; True: it failed. A node that ends is started again, as by
        a supervisor.
        """
        said = self.directory / "attack.log"
        command = [sys.executable, "-m", "tests.hostile.attacks", name, str(seconds)]
        attack = start_child([*command, json.dumps(asdict(self.target))], log=said, cwd=REPOSITORY)
        end = time.monotonic() + seconds + CLIENT_S_MAX
        try:
            while attack.poll() is None and time.monotonic() < end:
                self._look()
                time.sleep(SAMPLE_S)
        finally:
            kill_child(attack)
        words = said.read_text(errors="replace").strip().splitlines()
        return (words[-1] if words else "no word", attack.returncode != 0)

    # -------------------------------------------------------------------------------------- looks

    def _look(self) -> None:
        if not self.gateway.running:
            self._ends += 1
            self.gateway.start()
        self._rss_mib = max(self._rss_mib, _rss_peak_mib(self.gateway.pid))
        if time.monotonic() - self._asked_health >= HEALTH_S:
            self._asked_health = time.monotonic()
            self._health[str(health(self.target.admin)["status"])] += 1

    def _at_rest(self, seconds: float) -> Rest:
        """As long as it takes to see enough between two freezes of the machine."""
        began, began_ns, cpu = time.monotonic(), time.monotonic_ns(), self._cpu_s()
        while True:
            time.sleep(seconds)
            span, frozen = (began_ns, time.monotonic_ns()), self._freezes.spans()
            seen = [self._latency(name, span, frozen) for name in (PROBE, VICTIM, DIRECT)]
            if min(client.judged for client in seen) >= 2 * JUDGED_MIN:
                break
            assert time.monotonic() - began < REST_S_MAX + seconds, f"no rest: {seen}"
        stall, victim, direct = seen
        return Rest(
            stall=stall,
            victim=victim,
            direct=direct,
            cpu_share=(self._cpu_s() - cpu) / (time.monotonic() - began),
            connections=int(health(self.target.admin)["connections"]),
            rss_mib=psutil.Process(self.gateway.pid).memory_info().rss / (1 << 20),
        )

    def _until_rest(self, rest: Rest, rest_health: str) -> tuple[float, list[str]]:
        """The seconds from the end of the attack to rest, and the reasons against it: none."""
        began = last_bad = time.monotonic()
        while True:
            since_ns, cpu, pid = time.monotonic_ns(), self._cpu_s(), self.gateway.pid
            time.sleep(LOOK_S)
            now = time.monotonic()
            if not self.gateway.running:
                self._ends += 1
                self.gateway.start()
            # The first look behind a restart has another process's time.
            same = pid == self.gateway.pid
            share = (self._cpu_s() - cpu) / LOOK_S if same else 1.0
            self._rss_mib = max(self._rss_mib, _rss_peak_mib(self.gateway.pid))
            unrest = self._unrest(rest, rest_health, since_ns, share)
            last_bad = now if unrest else last_bad
            if not unrest and now - began >= AFTER_S:
                return last_bad - began, []
            if now - began >= REST_S_MAX + LOOK_S:
                return now - began, unrest

    def _unrest(self, rest: Rest, rest_health: str, since_ns: int, cpu_share: float) -> list[str]:
        frozen = self._freezes.spans()
        span = since_ns, time.monotonic_ns()
        probed, lived = (self._latency(name, span, frozen) for name in (PROBE, VICTIM))
        enough = ANSWERED_SHARE_MIN * PER_S * LOOK_S
        shown = health(self.target.admin)
        found = []
        if probed.count < enough or probed.longest > STALL_MS_MAX:
            found.append(
                f"{probed.count} answers to the probe, the longest {probed.longest:.0f} ms"
            )
        if lived.count < enough or lived.longest > P99_RATIO_MAX * rest.victim.p99:
            found.append(f"{lived.count} records to the victim, the latest {lived.longest:.0f} ms")
        if cpu_share > rest.cpu_share + CPU_SHARE_MORE:
            found.append(f"{100 * cpu_share:.0f} % of a core")
        if shown["status"] != rest_health:
            found.append(f"/health: {shown['status']} {shown['reasons'][:1]}")
        elif shown["connections"] > rest.connections + CONNECTIONS_MORE:
            found.append(f"{shown['connections']} connections, not {rest.connections}")
        return found

    # ---------------------------------------------------------------------------------- the node

    def _samples(self, names: Iterable[str]) -> dict[str, float]:
        """Of /metrics; 0 without one."""
        wanted = list(names)
        if not wanted:
            return {}
        with urllib.request.urlopen(f"http://{self.target.admin}/metrics", timeout=30) as answer:
            rows = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
        shown = {name: float(value) for name, _, value in rows if not name.startswith("#")}
        return {name: shown.get(name, 0.0) for name in wanted}

    def _cpu_s(self) -> float:
        try:
            times = psutil.Process(self.gateway.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _evicted(self) -> int:
        """Of the victims' group; the attacker's own members may go."""
        return sum(
            "member_evicted" in line and f"group='{VICTIMS}'" in line
            for line in self.gateway.log_text().splitlines()
        )

    def _warnings(self) -> int:
        log = self.gateway.log_text()
        return log.count("level='warning'") + log.count("level='error'")


def started(
    directory: Path,
    module: str,
    name: str,
    seconds: float,
    *arguments: str,
    login: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """A client beside attacks: tests.hostile.`module`, for so long at most."""
    command = [sys.executable, "-m", f"tests.hostile.{module}", *arguments]
    command += [str(seconds), str(_notes(directory, name)), *login]
    return start_child(command, log=directory / f"{name}.log", cwd=REPOSITORY)


def wait_for_first_record(directory: Path, name: str) -> None:
    log = directory / f"{name}.log"
    wait_until(
        lambda: log.exists() and "ready" in log.read_text(),
        what=f"the first record of {name}",
        deadline_s=30.0,
    )


def _notes(directory: Path, name: str) -> Path:
    return directory / f"{name}.ns"


def _rss_peak_mib(pid: int) -> float:
    """The most that the process ever had; where the system does not tell, its memory now."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        try:
            return float(psutil.Process(pid).memory_info().rss / (1 << 20))
        except psutil.Error:
            return 0.0
