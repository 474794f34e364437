"""`python -m tests.chaos.nodes` (make campaign NAME=nodes): three nodes in front of three brokers
under load, with stock clients of all three makers (franz-go where Go is installed), while nodes are
restarted in turn, killed, stopped for 20 s and cut off, while one is added and removed, and while
Redis is restarted and frozen.

Nothing may be lost, come out of order, overlap, or come again after an answered acknowledgement,
and no member may be without work afterwards.
The bars of pauses are printed beside the figures. Evidence of a run that failed stays in
build/chaos/nodes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from gateway.embedded.jars import build_dir
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.judge import Verdict
from tests.chaos.nodes.acts import Cost, Director
from tests.chaos.nodes.load import Load, p99_ms
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.go_programs import build_share_host
from tests.rig.clients.java_programs import compile_programs
from tests.rig.clients.share_members import ShareHost

NAMES, SPARE = "abc", "d"
BROKERS, PARTITIONS, PER_SECOND = 3, 6, 20
REST_S = 10
KILLED_S_MAX, PLANNED_S_MAX, OTHERS_MAX = 10.0, 1.0, 1.5
PLANNED = ("stop", "start", "drain", "undrain", "move", "add", "remove")
console = Console(width=140, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.nodes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of all acts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--acts", default=",".join(Director.ACTS), help="some of them")
    parser.add_argument("--seconds-max", type=float, default=1_800, help="no act starts after it")
    options = parser.parse_args()
    folder = build_dir() / "chaos"
    folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=folder, prefix="nodes-"))
    kept = folder / "nodes"
    try:
        with KafkaCluster(BROKERS, share_groups=False) as kafka:
            nodes = Nodes(directory, kafka, NAMES + SPARE, proxied=True)
            load = Load(
                kafka.bootstrap_servers,
                "orders",
                brokers=BROKERS,
                partitions=PARTITIONS,
                per_second=PER_SECOND,
            )
            director = Director(nodes, load, NAMES, SPARE, options.seed)
            programs = compile_programs()
            go = build_share_host()
            if go is None:
                console.print("no member of franz-go: there is no Go, or its modules are away")
            with ExitStack() as stack:
                kinds = [ShareHost.librdkafka(), ShareHost.java(programs)]
                hosts = [*kinds, *kinds, *([] if go is None else [ShareHost.franz_go(go)])]
                for host in dict.fromkeys(hosts):
                    stack.enter_context(host)
                stack.enter_context(nodes.running(NAMES))
                load.join(hosts, nodes.bootstrap, "nodes")
                verdict = _played(director, load, options)
                passed = _report(verdict, director)
    except BaseException:
        _keep(directory, kept)
        raise
    if not passed:
        _keep(directory, kept)
    shutil.rmtree(directory, ignore_errors=True)
    return 0 if passed else 1


def _played(director: Director, load: Load, options: argparse.Namespace) -> Verdict:
    began = time.monotonic()
    with load.running():
        load.wait_for_more(20)
        director.rest(REST_S)
        for _ in range(options.rounds):
            for act in options.acts.split(","):
                if time.monotonic() - began < options.seconds_max:
                    console.print(f"{time.monotonic() - began:6.0f} s {act}")
                    director.play(act)
                    load.wait_until_current()  # else the next rest is none
                    director.rest(REST_S / 2)
        director.rest(REST_S)
        director.look_for_silent()
    return load.finish()


def _report(verdict: Verdict, director: Director) -> bool:
    costs, nodes = director.costs(), director.nodes
    late = {act: _p99s_ms(costs, act) for act in dict.fromkeys(cost.act for cost in costs)}
    rest = late["rest"]
    bars = {"kill -9": KILLED_S_MAX} | dict.fromkeys(PLANNED, PLANNED_S_MAX)
    for act, kinds in late.items():
        pauses = [cost.pause_s for cost in costs if cost.act == act]
        bar = f"(bar {bars[act]:.0f} s)" if act in bars else ""
        others = ", ".join(f"{kind} {late_ms / rest[kind]:.2f}" for kind, late_ms in kinds.items())
        console.print(
            f"{act:16} {len(pauses):3} times: pause median {statistics.median(pauses):5.2f} s,"
            f" longest {max(pauses):5.2f} s {bar:11} {others}"
        )
    figures = ", ".join(f"{kind} {late_ms:.0f} ms" for kind, late_ms in rest.items())
    console.print(f"p99 at rest: {figures}; above: that of other nodes' partitions against it")
    console.print(f"(bar {OTHERS_MAX} for clients that ask all brokers at once)")
    bugs = [
        f"{name}: {line}"
        for name, node in nodes.nodes.items()
        for line in node.log_text().splitlines()
        if "Traceback" in line or "dispatcher_bug" in line or "handler_failed" in line
    ]
    silent = [f"{member} got nothing any more" for member in director.silent]
    for line in (*verdict.faults[:8], *bugs[:8], *silent):
        console.print(line, markup=False)
    passed = verdict.passed and not bugs and not silent
    said = "ok" if passed else "VIOLATED"
    console.print(
        f"{verdict.records} records, {verdict.again} again ({verdict.confirmed_again} of them after"
        f" an answered acknowledgement), {verdict.lost} lost, {verdict.reordered} keys out of"
        f" order: {said}"
    )
    return passed


def _p99s_ms(costs: Sequence[Cost], act: str) -> dict[str, float]:
    """By the kind of client, of other nodes' partitions; only kinds that had some."""
    waits: dict[str, list[int]] = {}
    for cost in costs:
        for kind, waits_ns in cost.others_ns.items() if cost.act == act else ():
            waits.setdefault(kind, []).extend(waits_ns)
    return {kind: late for kind, its in waits.items() if (late := p99_ms(its)) is not None}


def _keep(directory: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in directory.glob("*/gateway.log"):
        shutil.copy(log, kept / f"{log.parent.name}.log")


if __name__ == "__main__":
    sys.exit(main())
