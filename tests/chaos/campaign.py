"""Rounds one after the other on one site, one line each, and their sum."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.crew import Crew
from tests.chaos.judge import Verdict
from tests.chaos.plan import FULL, Pace, plan_of
from tests.chaos.round import Recovery, Round
from tests.chaos.site import Site
from tests.rig.clients.java_programs import JavaPrograms, compile_programs

COMPLAINTS_MAX = 12
console = Console(width=160, highlight=False)


def run(
    seeds: Sequence[int],
    folder: Path,
    *,
    seconds_max: float,
    pace: Pace = FULL,
    kafka: KafkaCluster | None = None,
    programs: JavaPrograms | None = None,
) -> bool:
    """Runs the rounds on one site, prints them; True if none was violated. None: of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=folder, prefix="run-"))
    site = Site(directory, pace.commit_interval_ms, kafka)
    crew = Crew(programs or compile_programs())
    recoveries: list[Recovery] = []
    failed: list[int] = []
    complaints: Counter[str] = Counter()
    done = 0
    began = time.monotonic()
    try:
        with site.running(), crew.running():
            for seed in seeds:
                if time.monotonic() - began > seconds_max:
                    break
                played = Round(plan_of(seed, pace), site, crew)
                try:
                    verdict = _played(played)
                except BaseException:
                    played.keep(folder / f"seed-{seed}", None)
                    raise
                recoveries += played.recoveries
                complaints += crew.complaints()
                done += 1
                if not verdict.passed:
                    failed.append(seed)
                    played.keep(folder / f"seed-{seed}", verdict)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _summary(done, failed, recoveries, folder)
    for text, count in complaints.most_common(COMPLAINTS_MAX):
        console.print(f"{count:7} x {text}"[:150], markup=False)
    return not failed


def _played(played: Round) -> Verdict:
    console.print(f"seed {played.plan.seed}: {played.plan}")
    began = time.monotonic()
    verdict = played.run()
    recovered = ", ".join(
        "-"
        if recovery.seconds is None
        else f"{recovery.seconds:.1f} s (up after {recovery.up_seconds:.1f})"
        for recovery in played.recoveries
    )
    console.print(
        f"  {verdict.records} records, {verdict.again} again ({verdict.confirmed_again} of them"
        f" confirmed before), {verdict.lost} lost, {verdict.reordered} reordered;"
        f" recovery {recovered}; {time.monotonic() - began:.0f} s:"
        f" {'ok' if verdict.passed else 'VIOLATED'}"
    )
    for fault in verdict.faults[:8]:
        console.print(f"    {fault}", markup=False)
    return verdict


def _summary(done: int, failed: list[int], recoveries: list[Recovery], folder: Path) -> None:
    kinds: dict[str, list[float]] = {}
    for recovery in recoveries:
        if recovery.seconds is not None:
            name = (
                recovery.strike.victims[0].value
                if len(recovery.strike.victims) == 1
                else "several at once"
            )
            kinds.setdefault(name, []).append(recovery.seconds)
    for name in sorted(kinds):
        seconds = kinds[name]
        console.print(
            f"recovery after {name}: median {statistics.median(seconds):.1f} s,"
            f" max {max(seconds):.1f} s, {len(seconds)} strikes"
        )
    console.print(f"{done} rounds, {len(failed)} violated")
    for seed in failed:
        console.print(f"  seed {seed}: see {folder / f'seed-{seed}'}")
