"""Logs that lose their end, as after a loss of power."""

from __future__ import annotations

import struct
from pathlib import Path

from gateway.embedded.kafka import KafkaBroker, KafkaCluster


def lose_tail(broker: KafkaBroker, topic: str, end: int) -> None:
    """Cuts partition 0 of a broker that is down, in front of the batch with `end`."""
    partition = broker.directory / "data" / f"{topic}-0"
    (log,) = partition.glob("*.log")
    data = log.read_bytes()
    at = 0
    while at < len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if base >= end:
            break
        at += 12 + size
    log.write_bytes(data[:at])
    _forget_derived(partition)


def lose_tail_of(kafka: KafkaCluster, topic: str, end: int) -> None:
    """The only broker dies, and comes back with partition 0 cut there."""
    (broker,) = kafka.brokers
    broker.kill()
    lose_tail(broker, topic, end)
    broker.start()
    kafka.wait_ready()


def saved_log(broker: KafkaBroker, topic: str) -> dict[Path, bytes]:
    """Partition 0 of a broker that is down, for `bring_back`."""
    partition = broker.directory / "data" / f"{topic}-0"
    names = [*partition.glob("*.log"), partition / "leader-epoch-checkpoint"]
    return {name: name.read_bytes() for name in names}


def bring_back(broker: KafkaBroker, topic: str, saved: dict[Path, bytes]) -> None:
    """As if another broker led partition 0 now, which was away since then."""
    for name, data in saved.items():
        name.write_bytes(data)
    _forget_derived(broker.directory / "data" / f"{topic}-0")


def _forget_derived(partition: Path) -> None:
    for ending in ("index", "timeindex", "snapshot"):
        for derived in partition.glob(f"*.{ending}"):
            derived.unlink()
