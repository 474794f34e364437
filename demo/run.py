"""`make demo`: the whole thing on one machine, on real data, and then judged from outside.

A real Kafka, the gateway as a child process, 336,776 real flights through it, three stock share
consumers of which one is killed, an audit of their own logs against the topic, and Spark's Kafka
source reading the same topic through the gateway. Everything started here is ended here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from types import FrameType

import yaml
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.audit import Report, audit
from demo.consumers import CONSUMERS, Outcome, consume
from demo.flights import (
    PARTITIONS,
    create_topic,
    load,
    per_carrier,
    read_flights,
    read_topic,
)
from demo.scene import Scene, stay
from gateway import compiled
from gateway.embedded.jars import KAFKA_VERSION, build_dir, java
from gateway.embedded.kafka import KafkaCluster, brokers_seen
from gateway.embedded.process import (
    SetupError,
    require_free,
    start_child,
    stop_child,
    wait_until,
)

TOPIC = "flights"
GROUP = "flight-trackers"
LATE_GROUP = "flight-board"  # reads what comes from now on
GATEWAY_READY_S_MAX = 120.0  # two seconds on a good machine; one that ends is noticed at once
SPARK_S_MAX = 300.0  # the first run fetches the connector
# Java's second compiler would take half of the job's CPU from the consumers, for code that has run.
SHORT_JOB = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PORT_VARIABLE = "KEYWAY_DEMO_PORT"


@dataclass(frozen=True, slots=True)
class Ports:
    """All from the gateway's bootstrap port: KEYWAY_DEMO_PORT moves them together."""

    bootstrap: int = 9192

    @property
    def admin(self) -> int:
        return self.bootstrap - 12

    @property
    def virtual_base(self) -> int:
        return self.bootstrap + 8

    @property
    def places(self) -> str:
        return f"Keyway 127.0.0.1:{self.bootstrap}, its dashboard http://127.0.0.1:{self.admin}"

    @property
    def kafka(self) -> int:
        return self.bootstrap + 9_900

    def require_all_free(self) -> None:
        """Raises SetupError for the first one that is taken."""
        for port, what in (
            (self.kafka, "the demo's Kafka"),
            (self.bootstrap, "the gateway's bootstrap port"),
            (self.virtual_base + 1, "the gateway's virtual broker 1"),
            (self.admin, "the gateway's REST"),
        ):
            require_free(port, what, f"set {PORT_VARIABLE} to another than {self.bootstrap}")


def ports_from_environment() -> Ports:
    """Raises SetupError if KEYWAY_DEMO_PORT is no usable number."""
    text = os.environ.get(PORT_VARIABLE, str(Ports().bootstrap))
    if not text.isdecimal() or not 1_100 <= int(text) <= 55_000:
        raise SetupError(f"{PORT_VARIABLE}={text}: a port from 1100 to 55000 is expected")
    return Ports(int(text))


def run_demo(keep: bool, *, flights_max: int | None = None, directory: Path | None = None) -> int:
    """The exit status: 0 if every check held, 1 if one failed, 2 if it could not run, 130 if
    interrupted. `flights_max` takes only the first flights (tests).
    """
    where = directory or build_dir() / "demo"
    return run_story(
        lambda console, running: _story(console, running, where, flights_max, keep=keep)
    )


def run_story(story: Callable[[Console, ExitStack], int]) -> int:
    """Runs a demo and ends all that it started, also when it fails or is interrupted. The exit
    status: the story's, 2 if it could not run, 130 if interrupted.
    """
    console = Console(highlight=False)
    former = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as running:
            return story(console, running)
    except (SetupError, KafkaException, TimeoutError) as error:
        console.print(f"keyway: {error}", style="red", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, former)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _story(
    console: Console, running: ExitStack, where: Path, flights_max: int | None, *, keep: bool
) -> int:
    started = time.monotonic()
    java()
    ports = ports_from_environment()
    ports.require_all_free()
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)

    # Beside the starts, which mostly wait.
    reading = running.enter_context(ThreadPoolExecutor(1)).submit(
        read_flights, flights_max=flights_max
    )
    gateway = start_gateway(running, ports, where)
    with step(console, f"Kafka {KAFKA_VERSION} on 127.0.0.1:{ports.kafka}"):
        kafka = KafkaCluster(1, ports=(ports.kafka,)).start()
        running.callback(kafka.stop)
    with step(console, f"Keyway on 127.0.0.1:{ports.bootstrap}, {compiled.describe()}"):
        gateway.wait_until_ready()
    through = f"127.0.0.1:{ports.bootstrap}"

    with step(console, "the data set"):
        flights = reading.result()
    half = len(flights) // 2
    with progress(console, "loading one half through Keyway", half) as advance:
        create_topic(through, TOPIC, PARTITIONS)
        load(through, TOPIC, flights[:half], advance)
    spark = _start_spark(running, through, where)

    def load_rest() -> None:
        load(through, TOPIC, flights[half:], lambda _: None)
        _let_read(spark)

    title = f"{CONSUMERS} share consumers, and the other half"
    with progress(console, title, len(flights)) as told:
        outcome = consume(
            through,
            GROUP,
            TOPIC,
            len(flights),
            where,
            advance=told,
            check=gateway.check,
            load_rest=load_rest,
        )
    report = audit(read_topic(kafka.bootstrap_servers, TOPIC), outcome.deliveries)
    whole = report.records == len(flights)
    _show_audit(console, report, outcome, len(flights))

    with step(console, "Spark's Kafka source, through Keyway"):
        by_spark = _flights_by_spark(spark, where)
    expected = per_carrier(flights)
    equal = "equal to" if by_spark == expected else "NOT equal to"
    console.print(f"flights per carrier, {equal} the data set:")
    console.print(_carriers(by_spark, expected))
    passed = report.passed and whole and bool(outcome.killed) and by_spark == expected
    conclude(console, passed, started, f"The consumers' logs and keyway.yaml: {where}")
    _tell_if_interpreted(console)
    if keep:
        places = f"{ports.places}, Kafka itself 127.0.0.1:{ports.kafka}"
        stay(
            console,
            running,
            Scene(TOPIC, GROUP, flights, through, through, places, where),
            gateway.check,
        )
    return 0 if passed else 1


def _show_audit(console: Console, report: Report, outcome: Outcome, flights: int) -> None:
    console.print("the consumers' own logs against the topic, read from Kafka directly:")
    console.print(_table(report, outcome))
    if report.records != flights:
        console.print(f"the topic has {report.records} records, not {flights}", style="red")
    if report.first_fault:
        console.print(f"first fault: {report.first_fault}", style="red")


def _tell_if_interpreted(console: Console) -> None:
    if not all(compiled.compiled_modules().values()):
        console.print(
            "Nothing was compiled for it. `make compile` takes a minute and a half of CPU, and the"
            " next run is faster.",
            soft_wrap=True,
        )


def conclude(console: Console, passed: bool, started_s: float, files: str) -> None:
    """Prints a demo's last line. `files` says where its logs and settings are."""
    seconds = time.monotonic() - started_s
    console.print(
        f"{'All checks held' if passed else 'A CHECK FAILED'}, {seconds:.0f} s. {files}",
        style="green" if passed else "red",
        soft_wrap=True,
    )


@dataclass(frozen=True, slots=True)
class Gateway:
    """`keyway serve` as a child process."""

    child: Popen[bytes]
    log: Path
    ports: Ports

    def check(self) -> None:
        """Raises SetupError with its last words once it has ended."""
        if self.child.poll() is not None:
            words = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise SetupError(f"the gateway ended ({self.child.returncode}): {' '.join(words)}")

    def wait_until_ready(self) -> None:
        wait_until(
            self._is_ready,
            what=f"the gateway ready (see {self.log})",
            deadline_s=GATEWAY_READY_S_MAX,
        )

    def _is_ready(self) -> bool:
        self.check()
        listening = (self.ports.bootstrap, self.ports.virtual_base + 1)
        return all(brokers_seen(port) == 1 for port in listening)


def start_gateway(
    running: ExitStack,
    ports: Ports,
    where: Path,
    *,
    upstream: str | None = None,
    clusters_file: Path | None = None,
) -> Gateway:
    """Starts it, and does not wait: its Kafka may come later. `upstream`: a Kafka elsewhere than at
    `ports.kafka`.
    """
    clusters = {} if clusters_file is None else {"clusters_file": str(clusters_file)}
    config = {
        "upstream": {"bootstrap_servers": upstream or f"127.0.0.1:{ports.kafka}"},
        "listen": {
            "host": "127.0.0.1",
            "bootstrap_port": ports.bootstrap,
            "port_base": ports.virtual_base,
        },
        "admin": {"host": "127.0.0.1", "port": ports.admin, **clusters},
        "state": {"directory": str(where / "state")},
        # Consumers that start together share from the first record on.
        "groups": [
            {"match": LATE_GROUP, "assignment_interval_ms": 0},
            {"match": "*", "auto_offset_reset": "earliest", "assignment_interval_ms": 0},
        ],
    }
    config_file = where / "keyway.yaml"
    config_file.write_text(yaml.safe_dump(config, sort_keys=False))
    log = where / "gateway.log"
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config_file)]
    child = start_child(command, log=log)
    running.callback(stop_child, child)
    return Gateway(child, log, ports)


def _start_spark(running: ExitStack, bootstrap_servers: str, where: Path) -> Popen[bytes]:
    """The Spark job, a process. It starts beside the consumers, and reads when it may."""
    out, log = where / "carriers.json", where / "spark.log"
    command = [sys.executable, "-m", "spark.flights", bootstrap_servers, TOPIC, str(out), "--told"]
    quickly = {"SPARK_SUBMIT_OPTS": SHORT_JOB} | dict(os.environ)
    child = start_child(command, log=log, env=quickly, stdin=subprocess.PIPE)
    running.callback(stop_child, child)
    return child


def _let_read(job: Popen[bytes]) -> None:
    """The topic is whole. A job that has ended is told by its exit status, later."""
    assert job.stdin is not None
    with suppress(BrokenPipeError):
        job.stdin.write(b"read\n")
        job.stdin.close()


def _flights_by_spark(job: Popen[bytes], where: Path) -> dict[str, int]:
    """Raises SetupError with the job's last words."""
    out, log = where / "carriers.json", where / "spark.log"
    try:
        job.wait(SPARK_S_MAX)
    except subprocess.TimeoutExpired:
        stop_child(job)
    if job.returncode != 0 or not out.exists():
        words = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise SetupError(f"the Spark job failed (see {log}): {' '.join(words)}")
    found: dict[str, int] = json.loads(out.read_text())
    return found


def _table(report: Report, outcome: Outcome) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rate = report.delivered / outcome.seconds
    zero = "[green]0[/]"
    rows = [
        ("records", f"{report.records:,}"),
        ("keys (tail numbers)", f"{report.keys:,}"),
        ("records without a key", f"{report.unkeyed:,}"),
        ("consumers", f"{report.consumers} ({outcome.killed or 'none'} killed)"),
        ("delivered", f"{report.delivered:,} ({rate:,.0f}/s)"),
        ("redelivered", f"{report.redelivered:,} ({report.repeated:,} processed before)"),
        ("lost", f"[red]{report.lost:,}[/]" if report.lost else zero),
        ("altered or unknown", f"{report.altered + report.unknown:,}"),
        (
            "keys out of order",
            f"[red]{report.keys_out_of_order:,}[/]" if report.keys_out_of_order else zero,
        ),
    ]
    for name, figure in rows:
        table.add_row(name, figure)
    return table


def _carriers(by_spark: dict[str, int], expected: dict[str, int]) -> Table:
    table = Table()
    for heading in ("carrier", "by Spark", "in the data set"):
        table.add_column(heading, justify="left" if heading == "carrier" else "right")
    for carrier in sorted(by_spark.keys() | expected.keys()):
        found, right = by_spark.get(carrier, 0), expected.get(carrier, 0)
        style = "" if found == right else "red"
        table.add_row(carrier, f"{found:,}", f"{right:,}", style=style)
    return table


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    started = time.monotonic()
    with console.status(what):
        yield
    console.print(f"[green]✓[/] {what}  [dim]{time.monotonic() - started:.1f} s[/]", soft_wrap=True)


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
