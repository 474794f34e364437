"""`make demo-clusters`: real flights copied from one cluster to another, masked on the way.

Two real Kafkas, each behind a gateway. The flights are loaded on `east`; `keyway distribute run`
copies them to `west` and masks the tail numbers; `keyway distribute verify` compares the two topics
by origin. Everything started here is ended here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from demo.flights import PARTITIONS, Flight, create_topic, load, read_flights, read_values
from demo.run import (
    LATE_GROUP,
    Ports,
    conclude,
    ports_from_environment,
    progress,
    run_story,
    start_gateway,
    step,
)
from demo.scene import Scene, stay
from gateway.embedded.jars import KAFKA_VERSION, build_dir, java
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import SetupError, start_child, stop_child

TOPIC = "flights"
COPIED_S_MAX = 300.0  # without progress
ANSWER_S_MAX = 300.0  # of a command; the first one fetches Spark's connector
ASK_EVERY_S = 3.0  # a command takes a second of CPU, which Spark needs to start
MASK_KEY = "KEYWAY_DEMO_MASK_KEY"

PIPELINE: dict[str, Any] = {
    "name": "mask-tail-numbers",
    "quarantine": "flights-quarantine",
    "steps": [
        {"mask": {"paths": ["tailnum"], "hmac": {"key_env": MASK_KEY}, "missing": "ignore"}},
        {"mask": {"part": "key", "hmac": {"key_env": MASK_KEY}, "missing": "ignore"}},
    ],
}


def run_demo(
    *, keep: bool = False, flights_max: int | None = None, directory: Path | None = None
) -> int:
    """The exit status: 0 if every check held, 1 if one failed, 2 if it could not run, 130 if
    interrupted. `flights_max` takes only the first flights (tests).
    """
    where = directory or build_dir() / "demo-clusters"
    return run_story(
        lambda console, running: _story(console, running, where, flights_max, keep=keep)
    )


def _story(
    console: Console, running: ExitStack, where: Path, flights_max: int | None, *, keep: bool
) -> int:
    started = time.monotonic()
    java()
    east = ports_from_environment()
    sides = {"east": east, "west": Ports(east.bootstrap + 100)}
    for ports in sides.values():
        ports.require_all_free()
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    config = _write_config(where, sides)
    kafkas: dict[str, KafkaCluster] = {}
    for name, ports in sides.items():
        with step(console, f"{name}: Kafka {KAFKA_VERSION} and Keyway on {ports.bootstrap}"):
            kafkas[name] = KafkaCluster(1).start()
            running.callback(kafkas[name].stop)
            (where / name).mkdir()
            upstream = kafkas[name].bootstrap_servers
            gateway = start_gateway(
                running, ports, where / name, upstream=upstream, clusters_file=config
            )
            gateway.wait_until_ready()
    with step(console, "the data set"):
        flights = read_flights(flights_max=flights_max)
    through = f"127.0.0.1:{sides['east'].bootstrap}"
    with progress(console, "loading on east", len(flights)) as advance:
        create_topic(through, TOPIC, PARTITIONS)
        load(through, TOPIC, flights, advance)
    copied_s = _copy(console, running, config, len(flights))
    with step(console, "keyway distribute verify: both topics, by origin"):
        verdict = json.loads(_keyway("verify", str(config), "east", "west", TOPIC, "-o", "json"))
    values = [json.loads(value) for value in read_values(kafkas["west"].bootstrap_servers, TOPIC)]
    passed = _show(console, flights, values, verdict, copied_s)
    conclude(console, passed, started, f"Logs, clusters.yaml and pipeline.yaml: {where}")
    if keep:
        _start_link(running, config)
        places = "; ".join(f"{name}: {ports.places}" for name, ports in sides.items())
        read_at = f"127.0.0.1:{sides['west'].bootstrap}"
        stay(
            console,
            running,
            Scene(TOPIC, LATE_GROUP, flights, through, read_at, places, where),
            gateway.check,
        )
    return 0 if passed else 1


def _write_config(where: Path, sides: dict[str, Ports]) -> Path:
    (where / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE, sort_keys=False))
    config = {
        "clusters": [
            {"name": name, "bootstrap_servers": f"127.0.0.1:{ports.bootstrap}"}
            for name, ports in sides.items()
        ],
        "tree": {"level": 1, "children": list(sides)},
        "topics": {"include": [TOPIC]},
        "messages": {
            "pipeline": str(where / "pipeline.yaml"),
            "state_directory": str(where / "state"),
        },
    }
    path = where / "clusters.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _copy(console: Console, running: ExitStack, config: Path, records: int) -> float:
    """Runs the link until it has copied everything; the seconds from its first record on. Its
    positions tell: what a batch has copied is counted at its end, and the flights are one batch.
    """
    child, log = _start_link(running, config)
    deadline, began, copied = time.monotonic() + COPIED_S_MAX, 0.0, 0
    with progress(console, "copying to west, masked", records) as advance:
        while copied < records:
            with suppress(subprocess.TimeoutExpired):
                child.wait(ASK_EVERY_S)
            if child.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise SetupError(f"the link did not copy (see {log}): {' '.join(words)}")
            links = json.loads(_keyway("status", str(config), "-o", "json"))
            rows = [
                row
                for link in links
                for topic in link["topics"].values()
                for row in topic["partitions"].values()
            ]
            now = sum(max(0, int(row["position"])) for row in rows)
            if now > copied:
                began, deadline = began or time.monotonic(), time.monotonic() + COPIED_S_MAX
            advance(now - copied)
            copied = now
    stop_child(child, grace_s=30)
    return time.monotonic() - began


def _start_link(running: ExitStack, config: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """And its log."""
    log = config.parent / "distribute.log"
    command = [sys.executable, "-m", "gateway.cli", "distribute", "run", str(config)]
    child = start_child([*command, "--cluster", "east"], log=log, env=_environment())
    running.callback(stop_child, child, grace_s=30)
    return child, log


def _environment() -> dict[str, str]:
    return {**os.environ, MASK_KEY: "a key that only this demo knows, long enough"}


def _keyway(*arguments: str) -> str:
    """The output of a command. Raises SetupError with its last words if it prints nothing."""
    command = [sys.executable, "-m", "gateway.cli", "distribute", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=ANSWER_S_MAX, env=_environment()
    )
    if not ended.stdout.strip():
        words = ended.stderr.strip().splitlines()[-1:]
        raise SetupError(f"keyway distribute {arguments[0]} failed: {' '.join(words)}")
    return ended.stdout


def _show(
    console: Console,
    flights: list[Flight],
    values: list[dict[str, Any]],
    verdict: dict[str, Any],
    copied_s: float,
) -> bool:
    """Prints the records that arrived; True if they are the expected ones."""
    tails = {flight.key.decode() for flight in flights if flight.key is not None}
    plain = sum(value.get("tailnum") in tails for value in values)
    masked = {value["tailnum"] for value in values if value.get("tailnum") is not None}
    west = verdict["clusters"]["west"]
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows = {
        "flights on east": len(flights),
        "records on west": west["records"],
        "missing": west["missing"]["count"],
        "twice": west["twice"]["count"],
        "out of order": west["out_of_order"]["count"],
        "altered by the pipeline": verdict["altered"]["count"],
        "aircraft on east": len(tails),
        "masked aircraft on west": len(masked),
        "plain tail numbers on west": plain,
        "seconds from first to last": round(copied_s),
    }
    for name, figure in rows.items():
        table.add_row(name, f"{figure:,}")
    console.print("arrived on west, by origin and from the log itself:")
    console.print(table)
    here = Counter(flight.carrier for flight in flights)
    there = Counter(str(value["carrier"]) for value in values)
    return bool(
        verdict["alike"]
        and west["records"] == len(flights)
        and here == there
        and len(masked) == len(tails)
        and not plain
    )


if __name__ == "__main__":
    sys.exit(run_demo(keep="--keep" in sys.argv[1:]))
