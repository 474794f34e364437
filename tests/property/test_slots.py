"""Slots of brokers, for all ids, topics and counts."""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.slots import SLOT_IDS, Slots

counts = st.integers(1, 16)
brokers = st.sets(st.integers(0, SLOT_IDS - 1), min_size=1, max_size=20)
topic_ids = st.binary(min_size=16, max_size=16)


@given(counts, brokers)
def test_each_virtual_broker_is_of_one_broker(count: int, ids: set[int]) -> None:
    slots = Slots(count)
    virtual = [(at, broker) for broker in ids for at in slots.all_of(broker)]
    assert len({at for at, _ in virtual}) == count * len(ids)
    assert all(slots.upstream(at) == broker for at, broker in virtual)
    assert {at for at, _ in virtual if not slots.is_extra(at)} == ids


@given(counts, topic_ids, st.integers(0, 100_000))
def test_a_partition_has_one_slot_that_exists(count: int, topic_id: bytes, partition: int) -> None:
    slot = Slots(count).slot(topic_id, partition)
    assert 0 <= slot < count
    assert Slots(count).slot(topic_id, partition) == slot


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 2**32))
def test_the_partitions_of_a_broker_are_spread(count: int, nodes: int, seed: int) -> None:
    """Leaders go round the brokers: the slots must not go round with them."""
    slots = Slots(count)
    topic_id = uuid.UUID(int=seed << 64 | seed * 7919).bytes
    partitions = 400 * count
    for leader in range(nodes):
        led = [at for at in range(partitions * nodes) if at % nodes == leader]
        loads = Counter(slots.slot(topic_id, at) for at in led)
        assert len(loads) == count
        assert max(loads.values()) < 1.4 * partitions / count, loads
