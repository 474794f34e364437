"""Rules for the deliveries that stock clients reported, judged from outside the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.rig.clients.share_lines import Delivery, TopicPartitionOffset

KeyPlace = tuple[str, int, bytes]


def by_key(deliveries: Iterable[Delivery]) -> dict[KeyPlace, list[Delivery]]:
    """Deliveries per (topic, partition, key) in order of time. Null keys have no order and are left
    out.
    """
    found: dict[KeyPlace, list[Delivery]] = {}
    for delivery in sorted(deliveries, key=lambda taken: taken.at_ns):
        if delivery.key is not None:
            place = (delivery.topic, delivery.partition, delivery.key)
            found.setdefault(place, []).append(delivery)
    return found


def assert_first_deliveries_in_order(deliveries: Iterable[Delivery]) -> None:
    """Per key, offsets appear for the first time in ascending order (redeliveries may repeat
    earlier ones).
    """
    for place, sequence in by_key(deliveries).items():
        highest = -1
        seen: set[int] = set()
        for delivery in sequence:
            if delivery.offset in seen:
                continue
            seen.add(delivery.offset)
            assert delivery.offset > highest, (
                f"{place}: {delivery.offset} after {highest}: {_trail(sequence)}"
            )
            highest = delivery.offset


def assert_never_backwards(deliveries: Iterable[Delivery]) -> None:
    """Per key, no delivery of a lower offset after a higher one: a record comes only when those
    before it are done.
    """
    for place, sequence in by_key(deliveries).items():
        for before, after in pairwise(sequence):
            assert after.offset >= before.offset, (
                f"{place}: {after.offset} after {before.offset}: {_trail(sequence)}"
            )


def assert_one_of_a_key(batch: Sequence[Delivery]) -> None:
    """No two records of one key in one poll: at most one record of a key is in flight."""
    keys = [
        (record.topic, record.partition, record.key) for record in batch if record.key is not None
    ]
    twice = (
        sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
    )
    assert not twice, f"keys more than once in flight: {twice[:5]}"


def places(deliveries: Iterable[Delivery]) -> list[TopicPartitionOffset]:
    return [delivery.place for delivery in deliveries]


def _trail(sequence: Sequence[Delivery]) -> str:
    return " ".join(f"{delivery.offset}@{delivery.member}" for delivery in sequence[:60])
