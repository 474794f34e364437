"""Schemas that follow: 10,000 subjects of 3 versions, from `_schemas` to the rig's registry over
REST in IMPORT mode, each version read back; then news again and again, for the cost of news alone
and for memory that stays.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import psutil

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from schema_dist.core.model import Schema, SchemaVersion
from tests.bench.rows import Row, rows_of
from tests.rig.schema_registry.site import HTTP, Site, served_registry, version

SUBJECTS = 10_000
VERSIONS = 3
FIRST_S_MAX = 600.0
MORE = 100  # versions that come later, each time
TIMES = 5
ASK_S = 0.25
FIRST = f"schemas: first {SUBJECTS} x {VERSIONS}"
LATER = f"schemas: {MORE} more"
FIRST_RSS = "schemas: RSS after the first"
LATER_RSS = f"schemas: RSS after {TIMES} times {MORE} more"


@dataclass(frozen=True, slots=True)
class Figures:
    """`first_s`: start of the process until all is on the target. `more_s`: `MORE` new versions,
    written until they are there, `TIMES` times. CPU of the process for all, its RSS in MiB after
    the first distribution and at the end.
    """

    versions: int
    first_s: float
    more_s: tuple[float, ...]
    cpu_s: float
    first_mib: float
    last_mib: float

    def __str__(self) -> str:
        return (
            f"{self.versions} versions in {self.first_s:.1f} s"
            f" ({self.versions / self.first_s:.0f}/s), {MORE} more in {median(self.more_s):.1f} s;"
            f" CPU {self.cpu_s:.1f} s, RSS {self.first_mib:.0f} and {self.last_mib:.0f} MiB"
        )


def made(number: int, at: int) -> SchemaVersion:
    fields = ",".join(
        f'{{"name":"f{field}","type":"string","default":""}}' for field in range(8 + at)
    )
    text = f'{{"type":"record","name":"R{number}","fields":[{fields}]}}'
    schema_id = 1 + number * (VERSIONS + TIMES) + at
    return version(f"acme-t{number}-value", at + 1, schema_id, Schema("AVRO", text))


def measure(kafka: str, subjects: int = SUBJECTS) -> Figures:
    """Runs `keyway schemas run` as a process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(served_registry(folder / "registry.log"))
        site = Site(kafka, folder, f"bench-{time.time_ns()}")
        port = free_ports(1)
        site.b["registry"] = {"url": url}
        site.schemas["metrics_port"] = port
        site.register(made(number, at) for number in range(subjects) for at in range(VERSIONS))
        begun = time.monotonic()
        child = stack.enter_context(site.running())
        process = psutil.Process(child.pid)
        wanted = subjects * VERSIONS
        wait_for(port, wanted)
        first_s, first = time.monotonic() - begun, process.memory_info().rss
        more_s = []
        for at in range(TIMES):
            begun = time.monotonic()
            site.register(made(number, VERSIONS + at) for number in range(MORE))
            wait_for(port, wanted + (at + 1) * MORE)
            more_s.append(time.monotonic() - begun)
        last, cpu = process.memory_info().rss, process.cpu_times()
    cpu_s = cpu.user + cpu.system
    return Figures(wanted, first_s, tuple(more_s), cpu_s, first / 2**20, last / 2**20)


def wait_for(port: int, versions: int) -> None:
    """Asks rarely: the process that is asked is the one that is measured."""
    until = time.monotonic() + FIRST_S_MAX
    while in_sync(port) != versions:
        if time.monotonic() > until:
            raise TimeoutError(f"{versions} versions: not within {FIRST_S_MAX:.0f} s")
        time.sleep(ASK_S)


def in_sync(port: int) -> int:
    """The process's own metrics; they were read back."""
    try:
        text = HTTP.get(f"http://127.0.0.1:{port}/metrics").text
    except httpx.HTTPError:
        return 0
    for line in text.splitlines():
        if line.startswith("keyway_schemas_in_sync{"):
            return int(float(line.split()[-1]))
    return 0


def schemas(kafka: str, rounds: Iterator[int]) -> list[Row]:
    """Rows for the first distribution and for later versions, in time and in memory."""
    found = [measure(kafka) for _ in rounds]
    seconds = {
        FIRST: [run.first_s for run in found],
        LATER: [s for run in found for s in run.more_s],
    }
    mib = {FIRST_RSS: [run.first_mib for run in found], LATER_RSS: [run.last_mib for run in found]}
    return [
        *rows_of(seconds, {LATER: (FIRST,)}, unit="s", digits=1),
        *rows_of(mib, {LATER_RSS: (FIRST_RSS,)}, unit="MiB", digits=1),
    ]


def main() -> int:
    """`python -m tests.bench.schemas [SUBJECTS]`."""
    subjects = int(sys.argv[1]) if len(sys.argv) > 1 else SUBJECTS
    with KafkaCluster(1) as kafka:
        sys.stdout.write(f"schemas: {measure(kafka.bootstrap_servers, subjects)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
