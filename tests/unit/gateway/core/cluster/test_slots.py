"""Slots of brokers: their ids, and what one slot is."""

from __future__ import annotations

from gateway.core.cluster.slots import ONE_SLOT, Slots

TWO = Slots(2)


def test_the_first_slot_has_the_id_of_the_broker() -> None:
    assert TWO.all_of(7) == [7, 1_000_007]
    assert [TWO.upstream(virtual) for virtual in (7, 1_000_007)] == [7, 7]
    assert [TWO.is_extra(virtual) for virtual in (None, -1, 7, 1_000_007)] == [
        False,
        False,
        False,
        True,
    ]


def test_nobody_has_no_slots() -> None:
    assert TWO.virtual(-1, 1) == TWO.upstream(-1) == -1


def test_with_one_slot_a_broker_is_itself_whatever_its_id() -> None:
    assert ONE_SLOT.all_of(5_000_001) == [5_000_001]
    assert ONE_SLOT.upstream(5_000_001) == 5_000_001
    assert not ONE_SLOT.is_extra(5_000_001)
    assert ONE_SLOT.slot(b"i" * 16, 5) == 0
