"""Logs that lose their end, as after a loss of power."""

from __future__ import annotations

import struct

from gateway.embedded.kafka import KafkaBroker


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
    for ending in ("index", "timeindex", "snapshot"):
        for derived in partition.glob(f"*.{ending}"):
            derived.unlink()
