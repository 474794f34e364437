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


def test_few_keys_tell_no_partitioner_and_only_refute_one_that_is_named() -> None:
    """By chance they fit one that is not the producers'."""
    trucks = [b"truck-%d" % at for at in range(1, 200)]
    by_crc32, by_murmur2 = (
        [key for key in trucks if partition_of(each, key, 2) == 0]
        for each in (Partitioner.CRC32, Partitioner.MURMUR2)
    )
    both = [key for key in by_crc32 if key in by_murmur2]
    for few in ([both[0]] * 200, both[:5], [*both[:5], *(set(by_crc32) - set(by_murmur2))][:19]):
        shown = shown_by({0: few}, 2)
        assert (shown.partitioner, shown.few, shown.strays) == (None, len(set(few)), ())
    assert shown_by({0: both[:25]}, 2).few == 25, "many keys that both put there"
    assert shown_by({0: by_crc32[:25]}, 2).partitioner is Partitioner.CRC32
    for named in Partitioner:
        assert shown_by({0: both[:1]}, 2, named).partitioner is named
        assert shown_by({0: both[:1]}, 1, named).partitioner is named
        assert shown_by({1: both[:1]}, 2, named).strays == ((1, both[0]),)
