"""Keys go where stock clients put them, and a topic's records show by which of them."""

from __future__ import annotations

from zlib import crc32

from aiokafka.partitioner import murmur2 as kafkas
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.repartition.partitioners import Partitioner, murmur2, partition_of, shown_by


@given(st.binary(max_size=40))
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == kafkas(key) & 0xFFFFFFFF


@given(st.binary(min_size=1, max_size=20), st.integers(1, 12), st.integers(1, 6))
def test_records_of_a_new_partition_come_from_one_old_one(key: bytes, old: int, times: int) -> None:
    for partitioner in Partitioner:
        assert partition_of(partitioner, key, old * times) % old == partition_of(
            partitioner, key, old
        )


def test_a_topic_shows_its_partitioner() -> None:
    keys = [b"key-%d" % at for at in range(40)]
    for partitioner in Partitioner:
        samples: dict[int, list[bytes]] = {}
        for key in keys:
            samples.setdefault(partition_of(partitioner, key, 4), []).append(key)
        assert shown_by(samples, 4).partitioner is partitioner
    mixed = {crc32(key) % 4: [key] for key in keys} | {9: [b"nowhere"]}
    assert shown_by(mixed, 4).partitioner is None
    assert (9, b"nowhere") in shown_by(mixed, 4).strays
    assert shown_by({0: keys}, 1).partitioner is None
    assert not shown_by({0: [b""]}, 4).strays, "an empty key says nothing"
