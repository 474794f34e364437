"""A demo that stays up (`KEEP=1`) stays alive. It has a trickle of flights, three members of which
one is slow, and a record that none of them can read, which is parked after some seconds. So the
dashboard and the commands have something to show, and to try.

The demo ends by itself, so a demo that is forgotten fills no disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from demo.flights import Flight
from gateway.embedded.process import SetupError, start_child, stop_child

KEPT_S_MAX = 2 * 3_600.0
FLIGHTS_PER_S = 8  # the slow member has a third of them, and time for five
MEMBERS = {"tracker-1": 0.0, "tracker-2": 0.0, "tracker-slow": 0.2}  # seconds for a record
POISON = b"N123XX: not a flight"
POISON_AFTER = 10 * FLIGHTS_PER_S  # the members read by then
FLUSH_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Scene:
    """`produced_at` and `read_at` are addresses of gateways; `places` says what is up where.
    `number` is the header of the first flight, so that the flights can be told apart.
    """

    topic: str
    group: str
    flights: Sequence[Flight]
    produced_at: str
    read_at: str
    places: str
    logs: Path
    number: int = 0


def stay(
    console: Console,
    running: ExitStack,
    scene: Scene,
    check: Callable[[], None],
    *,
    seconds: float = KEPT_S_MAX,
) -> None:
    """Until the seconds are over or Ctrl-C; `check` is called all the time and raises to end it.
    Raises SetupError if a member ends.
    """
    members = {}
    for name, pause_s in MEMBERS.items():
        command = [sys.executable, "-m", "demo.tracker"]
        command += [scene.read_at, scene.group, scene.topic, name, str(pause_s)]
        members[name] = start_child(command, log=scene.logs / f"{name}.log")
        running.callback(stop_child, members[name])
    console.print(
        f"Still up: {scene.places}. {FLIGHTS_PER_S} flights a second go on into topic"
        f" {scene.topic}, group {scene.group} has {len(MEMBERS)} members, one of them slow, and one"
        f" record that they cannot read will be parked. Ctrl-C ends it all, else it ends in"
        f" {seconds / 3_600:.0f} h.",
        soft_wrap=True,
    )
    end = time.monotonic() + seconds
    with suppress(KeyboardInterrupt):
        poisoned = next((flight.key for flight in scene.flights if flight.key is not None), None)
        producer, reached = _producer(scene.produced_at), _producer(scene.read_at)
        for flight, number in zip(cycle(scene.flights), count(scene.number + 1), strict=False):
            if time.monotonic() > end:
                break
            check()
            for name, member in members.items():
                if member.poll() is not None:
                    raise SetupError(f"{name} ended: see {scene.logs / f'{name}.log'}")
            if number == scene.number + POISON_AFTER:
                _send(reached, scene.topic, POISON, poisoned, scene.number)
                reached.flush(FLUSH_S_MAX)
            _send(producer, scene.topic, flight.value, flight.key, number)
            producer.poll(0)
            time.sleep(1 / FLIGHTS_PER_S)
        producer.flush(FLUSH_S_MAX)


def _send(producer: Producer, topic: str, value: bytes, key: bytes | None, number: int) -> None:
    producer.produce(topic, value, key, headers={"number": b"%d" % number})


def _producer(where: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": where,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as the Java client does
            "log_level": 3,  # errors only: it retries by itself
        }
    )
