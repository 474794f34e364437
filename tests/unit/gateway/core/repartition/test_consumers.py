"""The ends of new partitions, as the groups of a client see them."""

from __future__ import annotations

from struct import Struct

from gateway.core.repartition.consumers import (
    ANYBODY,
    Client,
    ConsumerEnds,
    GroupsOfClients,
    records_before,
)
from gateway.core.repartition.limits import CLIENT_GROUPS_MAX
from gateway.core.wire.long_bytes import Stretch

ME: Client = ("10.0.0.1", "app")
NOT_KNOWN: frozenset[str] = frozenset()
_HEAD = Struct(">qi")


def test_the_end_is_the_earliest_of_a_clients_groups() -> None:
    ends = ConsumerEnds(frozenset({"a", "b"}), before=2)
    ends.put("a", 2, 10)
    ends.put("a", 2, 4)  # it moves forward only
    assert ends.end_for(frozenset({"a"}), 2) == 10
    assert ends.end_for(frozenset({"a", "b"}), 2) == 0
    assert ends.end_for(NOT_KNOWN, 2) == 0
    assert ends.end_for(frozenset({"new"}), 2) is None
    assert ends.end_for(NOT_KNOWN, 1) is None, "an old partition"
    ends.put(ANYBODY, 2, 12)
    ends.passed("b")
    assert ends.end_for(NOT_KNOWN, 2) == 10
    ends.passed("a")
    assert ends.end_for(NOT_KNOWN, 2) == 12
    assert ends.end_for(frozenset({"a"}), 2) is None
    assert ends.waiting == frozenset()


def test_the_groups_of_a_client_are_all_that_it_named() -> None:
    groups = GroupsOfClients()
    groups.named(ME, ["a"])
    groups.named(ME, ["b"])
    groups.named(("10.0.0.2", "app"), ["c"])
    assert groups.of(ME) == {"a", "b"}
    assert groups.of(("10.0.0.1", None)) == NOT_KNOWN


def test_other_nodes_are_told_of_the_clients_of_some_groups() -> None:
    here, there = GroupsOfClients(), GroupsOfClients()
    here.named(ME, ["a", "b"])
    there.named(ME, ["c"])
    there.heard(here.clients_of({"a", "c"}))
    assert there.anywhere(ME) == {"a", "c"}
    assert there.of(ME) == {"c"}
    assert here.anywhere(ME) == {"a", "b"}
    there.heard([])
    assert there.anywhere(ME) == {"c"}


def test_a_client_of_too_many_groups_is_as_one_that_is_not_known() -> None:
    groups = GroupsOfClients()
    for number in range(CLIENT_GROUPS_MAX + 1):
        groups.named(ME, [f"g{number}"])
    assert groups.of(ME) == NOT_KNOWN
    groups.named(ME, ["g0"])
    assert groups.of(ME) == NOT_KNOWN, "else it would wait for this one alone"


def test_batches_from_the_end_on_are_cut_off() -> None:
    batches = [_HEAD.pack(base, 8) + bytes(8) for base in (5, 8, 20)]
    data = b"".join(batches)
    assert records_before(data, 5) == b""
    assert records_before(data, 8) == batches[0]
    assert records_before(data, 21) == data
    assert records_before(Stretch(b"x" + data, 1, 1 + len(data)), 20) == b"".join(batches[:2])
    assert records_before(None, 5) == b""
    assert records_before(data[:-9], 21) == data[:-9], "a batch that is cut off stays"
