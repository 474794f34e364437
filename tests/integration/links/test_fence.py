"""A link leaves a target that is alive while it still writes there: nothing is written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow
import pytest
from confluent_kafka import KafkaException

from gateway.embedded.kafka import KafkaCluster
from spark.links.switch import choose_target, require_generation
from spark.links.switching import ask_for_switch
from spark.streaming.core.survey import Position, Tail
from spark.streaming.orders import Partition
from spark.streaming.produce import PositionMoved, copying
from tests.rig.link_by_hand import LEVEL, A, B, C, LinkByHand

pytestmark = pytest.mark.integration

VALUES = [b"0", b"1", b"2"]


@pytest.fixture
def link(kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]) -> LinkByHand:
    """It has copied three records to `b`; two more are on `a`."""
    found = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("fence"))
    found.create("orders", A, B, C)
    found.send("orders", [*VALUES, b"3", b"4"])
    found.copy("orders", VALUES, B)
    found.stands({"orders": 3}, B)
    return found


def switch(link: LinkByHand) -> Position:
    """The order, and the link that obeys it; returns where it goes on at `c`."""
    ask_for_switch(link.config, A, LEVEL, C, rewind=False, execute=True)
    chosen = choose_target(link.config, link.distributor, link.source, link.report())
    assert chosen.target == C
    (position,) = link.side(C).positions(chosen.group, [(link.name(C, "orders"), 0)]).values()
    return position


def test_a_batch_in_flight_at_the_old_target_is_not_committed(link: LinkByHand) -> None:
    """Its records went to both targets: those of a long batch, 12,500 of them."""
    reached: list[Position] = []

    def batches() -> Iterator[pyarrow.RecordBatch]:
        yield link.rows("orders", [b"3"], 3)
        reached.append(switch(link))
        yield link.rows("orders", [b"4"], 4)

    with pytest.raises(KafkaException):
        list(copying(link.writing(B, "orders"))(batches()))
    assert reached[0].offset == 3
    assert link.values(B, "orders") == VALUES
    list(copying(link.writing(C, "orders"))([link.rows("orders", [b"3", b"4"], 3)]))
    assert link.values(C, "orders") == [b"3", b"4"]


@pytest.mark.deep
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_frozen_process_writes_nothing_after_the_switch(
    link: LinkByHand, *, exactly_once: bool
) -> None:
    """It wakes up with the orders of before."""
    orders = link.writing(B, "orders", exactly_once=exactly_once)
    assert switch(link).offset == 3
    with pytest.raises(PositionMoved, match="switched away from this target"):
        list(copying(orders)([link.rows("orders", [b"3", b"4"], 3)]))
    assert link.values(B, "orders") == VALUES


def test_a_partition_without_a_position_is_fenced_too(link: LinkByHand) -> None:
    """Its first batch may be in flight."""
    link.create("new", A, B, C)
    link.send("new", VALUES)
    orders = link.writing(B, "new")
    switch(link)
    with pytest.raises(PositionMoved):
        list(copying(orders)([link.rows("new", VALUES, 0)]))
    assert link.values(B, "new") == []


def test_a_first_batch_of_which_nothing_is_reported_yet(link: LinkByHand) -> None:
    """What it has committed at the old target is not copied again to the new one."""
    link.create("new", A, B, C)
    link.send("new", VALUES)
    name = link.name(A, "new")
    link.report().planned(link.source.topics([name]), {}, {}, {})
    list(copying(link.writing(B, "new"))([link.rows("new", VALUES[:2], 0)]))
    switch(link)
    list(copying(link.writing(C, "new"))([link.rows("new", VALUES, 0)]))
    assert (link.values(B, "new"), link.values(C, "new")) == (VALUES[:2], VALUES[2:])


@pytest.mark.deep
def test_back_to_the_first_target(link: LinkByHand) -> None:
    """The fence holds off what is older, and no one else."""
    switch(link)
    list(copying(link.writing(C, "orders"))([link.rows("orders", [b"3"], 3)]))
    ask_for_switch(link.config, A, LEVEL, B, rewind=False, execute=True)
    choose_target(link.config, link.distributor, link.source, link.report())
    list(copying(link.writing(B, "orders"))([link.rows("orders", [b"4"], 4)]))
    assert link.values(B, "orders") == [*VALUES, b"4"]
    assert link.values(C, "orders") == [b"3"]


@pytest.mark.deep
def test_a_switch_that_was_carried_out_twice_moves_nothing_back(link: LinkByHand) -> None:
    """By a process that died behind it, or a second one that has read the same order."""
    late = link.report()
    switch(link)
    list(copying(link.writing(C, "orders"))([link.rows("orders", [b"3", b"4"], 3)]))
    choose_target(link.config, link.distributor, link.source, late)
    place = (link.name(C, "orders"), 0)
    assert link.side(C).positions(link.link(C).group, [place])[place].offset == 5


@pytest.mark.deep
def test_a_switch_that_the_status_topic_has_forgotten(link: LinkByHand) -> None:
    report = link.report()
    position = switch(link)
    with pytest.raises(KafkaException, match="say with `keyway distribute switch`"):
        require_generation([position], report, link.link(C))
    require_generation([position], link.report(), link.link(C))


def test_a_process_that_was_frozen_at_its_start_sets_nothing_back(
    link: LinkByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one has copied the first records since. They would have been copied again."""
    link.create("new", A, B)
    link.send("new", VALUES)
    name, place = link.name(A, "new"), (link.name(B, "new"), 0)
    ids = {name: link.side(B).identities([place[0]])[place[0]][0]}
    link.report().planned(link.source.topics([name]), {}, ids, {})
    run = link.process(B)
    surveyed, asked = run._survey(), run._source.tails

    def thawed(places: Iterable[Partition]) -> dict[Partition, Tail]:
        list(copying(link.writing(B, "new"))([link.rows("new", VALUES, 0)]))
        return asked(places)

    monkeypatch.setattr(run._source, "tails", thawed)
    with pytest.raises(KafkaException, match="moved meanwhile"):
        run._starts(surveyed)
    assert link.side(B).positions(link.link(B).group, [place])[place].offset == len(VALUES)
