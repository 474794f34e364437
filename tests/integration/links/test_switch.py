"""A switch of targets on real Kafkas: nothing that is gone, or large, holds it up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from gateway.embedded.kafka import KafkaCluster
from spark.links import switching
from spark.links.status import Json
from spark.links.switch import choose_target
from spark.links.switching import ask_for_switch, switch_text
from tests.rig.kafka import delete_topic
from tests.rig.link_by_hand import LEVEL, A, B, C, LinkByHand

pytestmark = pytest.mark.integration

VALUES = [b"0", b"1", b"2"]


@pytest.fixture
def link(kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]) -> LinkByHand:
    return LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("switch"))


def copied_to_b(link: LinkByHand, *topics: str) -> None:
    """Three records of each topic, which `c` lacks."""
    for topic in topics:
        link.create(topic, A, B)
        link.send(topic, VALUES)
        link.copy(topic, VALUES, B)
    link.stands({topic: len(VALUES) for topic in topics}, B)


def ask(link: LinkByHand, *, rewind: bool = False) -> Json:
    return ask_for_switch(link.config, A, LEVEL, C, rewind=rewind, execute=True)


@pytest.mark.parametrize("rewind", [False, True])
def test_a_topic_that_was_deleted_at_the_source(link: LinkByHand, *, rewind: bool) -> None:
    """It failed the switch for good; it is named and left out."""
    copied_to_b(link, "kept", "gone")
    delete_topic(link.front, link.name(A, "gone"))
    link.create("kept", C)
    kept, gone = link.name(A, "kept"), link.name(A, "gone")
    shown = ask(link, rewind=rewind)
    assert shown["left_out"] == {gone: "a has no such topic any more"}
    assert [(row["topic"], row["records"]) for row in shown["unforwarded"]] == [(kept, 3)]
    assert f"{gone}: left out, a has no such topic any more" in switch_text(shown)
    report = link.report()
    chosen = choose_target(link.config, link.distributor, link.source, report)
    assert chosen.target == C
    assert report.switch() is None, "it is carried out"
    places = [(link.name(C, "kept"), 0), (link.name(C, "gone"), 0)]
    found = link.side(C).positions(chosen.group, places)
    assert {place: position.offset for place, position in found.items()} == {
        places[0]: 0 if rewind else 3
    }


def test_a_topic_that_does_not_follow_any_more(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """Its position moves along, should it come back; it is not compared."""
    run = fresh_name("switch")
    copied_to_b(LinkByHand(kafka.bootstrap_servers, tmp_path, run), "kept", "left")
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, run, topics={"exclude": ["left"]})
    link.create("left", C)
    shown = ask(link)
    assert shown["left_out"] == {link.name(A, "left"): "it does not follow any more"}
    chosen = choose_target(link.config, link.distributor, link.source, link.report())
    places = [(link.name(C, topic), 0) for topic in ("kept", "left")]
    found = link.side(C).positions(chosen.group, places)
    assert [found[place].offset for place in places] == [3, 3]


def test_the_order_is_given_before_anything_is_compared(
    link: LinkByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stands, if a cluster fails while its records are compared."""
    copied_to_b(link, "kept")

    def fails(*_: object) -> None:
        assert link.report().switch() is not None
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "away"))

    monkeypatch.setattr(switching, "compare_into", fails)
    shown = ask(link)
    assert shown["problem"] == "away"
    assert "were not compared: away" in switch_text(shown)
    order = link.report().switch()
    assert order is not None
    assert (order["target"], order["rewind"]) == (C, False)


def test_what_the_link_copies_meanwhile_does_not_count(link: LinkByHand) -> None:
    """The link obeys at once, and may be at the new target before all is compared."""
    copied_to_b(link, "kept")
    link.create("kept", C)
    copied: list[str] = []

    def step(text: str) -> None:
        if not copied:
            link.copy("kept", VALUES, C)
        copied.append(text)

    shown = ask_for_switch(link.config, A, LEVEL, C, rewind=True, execute=True, step=step)
    assert [row["records"] for row in shown["unforwarded"]] == [3]
    assert copied == [f"comparing {link.name(A, 'kept')}-0"]
    later = ask_for_switch(link.config, A, LEVEL, C, rewind=True, execute=False)
    assert later["unforwarded"] == []
