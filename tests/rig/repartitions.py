"""A topic gets other partitions: what a test asks a node, and waits for."""

from __future__ import annotations

from typing import Any

from gateway.core.repartition.partitioners import Partitioner, partition_of
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import rest
from tests.rig.patience import wait_until

QUICK = {"adoption_timeout_ms": 1_000, "settle_ms": 1_000, "delivery_timeout_ms": 4_000}
MURMUR2 = {"partitioner": "murmur2_random"}


def key_for(partition: int, partitions: int) -> bytes:
    """One that murmur2 puts there."""
    keys = (b"key-%d" % at for at in range(1_000))
    return next(
        key for key in keys if partition_of(Partitioner.MURMUR2, key, partitions) == partition
    )


def repartition(node: GatewayProcess, topic: str, **fields: Any) -> dict[str, Any]:
    status, answer = rest(node, "/v1/repartitions", {"topic": topic, **fields})
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def status(node: GatewayProcess, topic: str) -> dict[str, Any]:
    _, answer = rest(node, f"/v1/repartitions?topic={topic}")
    (row,) = answer["repartitions"]
    found: dict[str, Any] = row
    return found


def wait_for_phase(node: GatewayProcess, topic: str, *phases: str, within_s: float = 60) -> None:
    def there() -> bool:
        return status(node, topic)["phase"] in phases

    try:
        wait_until(there, what=f"{topic} {phases}", deadline_s=within_s)
    except AssertionError as late:
        raise AssertionError(f"{late}: {status(node, topic)}\n{node.log_tail()}") from late


def wait_for_line(node: GatewayProcess, words: str) -> None:
    """In its log; seen as soon as it is there."""
    wait_until(lambda: words in node.log_text(), what=words, deadline_s=60, every_s=0.002)
