"""Three stock share consumers as child processes, one of which is killed on the way.

That consumer is frozen (SIGSTOP) a moment before it is killed (SIGKILL). Records that reach it in
between are surely delivered and surely unacknowledged, so every run shows records of a dead
consumer coming back.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from demo.audit import Delivery, parse_log
from gateway.embedded.process import SetupError, kill_child, start_child, stop_child

CONSUMERS = 3
FREEZE_AT = 1 / 3  # of the records processed; the other two consumers finish
FROZEN_S = 0.5
STALL_S_MAX = 60.0  # longer than any lock or session timeout: a later record never comes
POLL_S = 0.05


@dataclass(slots=True)
class RunningConsumer:
    """A child, and its log so far."""

    name: str
    log: Path
    errors: Path
    child: subprocess.Popen[bytes]
    deliveries: list[Delivery] = field(default_factory=list)
    read_to: int = 0  # bytes of the log that are parsed

    def read_on(self) -> list[Delivery]:
        """The whole lines since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as lines:
            lines.seek(self.read_to)
            fresh = lines.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self.read_to += len(whole)
        found = parse_log(self.name, whole.decode("ascii"))
        self.deliveries += found
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    deliveries: list[Delivery]
    killed: str  # the consumer that was
    seconds: float


def consume(
    bootstrap_servers: str,
    group: str,
    topic: str,
    records: int,
    directory: Path,
    *,
    advance: Callable[[int], None],
    check: Callable[[], None],
    load_rest: Callable[[], None],
) -> Outcome:
    """Runs the consumers until every record of the topic is in a log, or nothing moves any more.

    `advance` hears how many more records are processed; `check` is called often and raises to end
    it all. More than FREEZE_AT of the records are there, and `load_rest` writes the others once one
    consumer is frozen: however fast they are, they cannot end before. Raises SetupError if a
    consumer ends by itself. Leaves no process.
    """
    started = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    consumers = [
        _start(bootstrap_servers, group, topic, directory, number)
        for number in range(1, CONSUMERS + 1)
    ]
    try:
        killed = follow(consumers, records, advance, check, load_rest)
        for consumer in consumers:
            stop_child(consumer.child, grace_s=20)
            consumer.read_on()
    finally:
        for consumer in consumers:
            kill_child(consumer.child)
    deliveries = [delivery for consumer in consumers for delivery in consumer.deliveries]
    return Outcome(deliveries, killed, time.monotonic() - started)


def _start(
    bootstrap_servers: str, group: str, topic: str, directory: Path, number: int
) -> RunningConsumer:
    name = f"consumer-{number}"
    log, errors = directory / f"{name}.log", directory / f"{name}.err"
    command = [sys.executable, "-m", "demo.consumer"]
    command += [bootstrap_servers, group, topic, str(log)]
    return RunningConsumer(name, log, errors, start_child(command, log=errors))


def follow(
    consumers: list[RunningConsumer],
    records: int,
    advance: Callable[[int], None],
    check: Callable[[], None],
    load_rest: Callable[[], None],
) -> str:
    """Returns the killed consumer when every record is in a log, or when nothing moves any more."""
    victim: RunningConsumer | None = None
    frozen_at = 0.0
    killed = ""
    seen: set[tuple[int, int]] = set()
    moved_at = time.monotonic()
    while len(seen) < records and time.monotonic() - moved_at < STALL_S_MAX:
        check()
        before = len(seen)
        for consumer in consumers:
            seen.update((found.partition, found.offset) for found in consumer.read_on())
            if consumer.child.poll() is not None and consumer.name != killed:
                words = consumer.errors.read_text(errors="replace").strip().splitlines()[-1:]
                raise SetupError(f"{consumer.name} ended by itself: {' '.join(words)}")
        if len(seen) > before:
            advance(len(seen) - before)
            moved_at = time.monotonic()
        if victim is None:
            if len(seen) >= records * FREEZE_AT:
                # One that is at work: on little data the others may not have joined yet.
                victim = max(consumers, key=lambda consumer: len(consumer.deliveries))
                victim.child.send_signal(signal.SIGSTOP)
                frozen_at = time.monotonic()
                load_rest()
                moved_at = time.monotonic()
        elif not killed and time.monotonic() - frozen_at >= FROZEN_S:
            kill_child(victim.child)
            killed = victim.name
        time.sleep(POLL_S)
    if victim is not None and not killed:  # the others were faster
        kill_child(victim.child)
        killed = victim.name
    return killed
