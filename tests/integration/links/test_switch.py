"""A switch of targets on real Kafkas: nothing that is gone, or large, holds it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import ClustersConfig, load
from spark.links import switch, switching
from spark.links.link import Link
from spark.links.status import Json
from spark.links.switch import choose_target
from spark.links.switching import ask_for_switch, switch_text
from spark.streaming.core.survey import Position
from tests.rig.kafka import create_topic, delete_topic
from tests.rig.link_by_hand import LEVEL, A, B, C, LinkByHand
from tests.rig.several_clusters import send

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


def test_a_process_that_was_frozen_in_a_switch_sets_nothing_back(
    link: LinkByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process had carried the switch out, and its records were copied once more."""
    copied_to_b(link, "flights")
    link.create("flights", C)
    ask(link)
    place, asked = (link.name(C, "flights"), 0), switch.on_target

    def frozen(*given: Any) -> Any:
        found = asked(*given)
        ((_, marked),) = found[0].items()
        later = {place: replace(marked, offset=marked.offset + 2)}
        link.side(C).set_positions(link.link(C).group, later)
        return found

    monkeypatch.setattr(switch, "on_target", frozen)
    with pytest.raises(KafkaException, match="have moved meanwhile, by another process"):
        choose_target(link.config, link.distributor, link.source, link.report())
    found = link.side(C).positions(link.link(C).group, [place])
    assert found[place].offset == len(VALUES) + 2


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


def starts_at(link: LinkByHand, topic: str) -> dict[int, int]:
    """Where the next query of the link to `c` would begin, as a process of it finds out."""
    run = link.process(C)
    starts, plan = run._starts(run._survey())
    reached = run._epochs.positions(run._reached)
    run.report.planned(plan.topics, plan.stopped, plan.target_ids, reached)
    return {
        partition: at for (name, partition), at in starts.items() if name == link.name(A, topic)
    }


@pytest.mark.parametrize("rewind", [False, True])
def test_a_topic_that_the_new_target_gets_only_later_goes_on_at_its_position(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str], *, rewind: bool
) -> None:
    """The link stopped it with "the target has no such topic". Once the operator had created it,
    all retained records were copied again.
    """
    run, by_hand = fresh_name("switch"), {"create_topics": False}
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, run, messages=by_hand)
    copied_to_b(link, "late")
    ask(link, rewind=rewind)
    owed = 0 if rewind else len(VALUES)
    choose_target(link.config, link.distributor, link.source, link.report())
    assert starts_at(link, "late") == {}
    link.create("late", C)
    assert starts_at(link, "late") == {0: owed}
    found = link.side(C).positions(link.link(C).group, [(link.name(C, "late"), 0)])
    assert [position.offset for position in found.values()] == [owed]
    assert link.report().topics()[link.name(A, "late")].owed == {}, "it is committed there"


def test_partitions_that_the_new_target_gets_only_later(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    run, by_hand = fresh_name("switch"), {"create_topics": False}
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, run, messages=by_hand)
    for cluster, partitions in ((A, 2), (B, 2), (C, 1)):
        create_topic(link.front, link.name(cluster, "wide"), partitions=partitions)
    records = [{"value": value, "partition": at} for at in (0, 1) for value in VALUES]
    send(link.front, link.name(A, "wide"), records)
    ((topic_id, _),) = link.source.identities([link.name(A, "wide")]).values()
    places = {(link.name(B, "wide"), at): Position(2 + at, topic_id) for at in (0, 1)}
    link.side(B).set_positions(link.link(B).group, places)
    report = link.report()
    report.targeted(B)
    reached = {(link.name(A, "wide"), at): Position(2 + at, topic_id) for at in (0, 1)}
    ((there, _),) = link.side(B).identities([link.name(B, "wide")]).values()
    topics = link.source.topics([link.name(A, "wide")])
    report.planned(topics, {}, {link.name(A, "wide"): there}, reached)
    ask(link)
    choose_target(link.config, link.distributor, link.source, link.report())
    assert starts_at(link, "wide") == {}, "its partitions differ"
    link.side(C).grow(link.name(C, "wide"), 2)
    assert starts_at(link, "wide") == {0: 2, 1: 3}


def test_positions_that_a_target_could_not_take_go_along_to_the_next_one(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """And back to the first: `c` never got the topic."""
    run, by_hand = fresh_name("switch"), {"create_topics": False}
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, run, messages=by_hand)
    copied_to_b(link, "late")
    ask(link)
    choose_target(link.config, link.distributor, link.source, link.report())
    assert starts_at(link, "late") == {}
    ask_for_switch(link.config, A, LEVEL, B, rewind=False, execute=True)
    choose_target(link.config, link.distributor, link.source, link.report())
    found = link.side(B).positions(link.link(B).group, [(link.name(B, "late"), 0)])
    assert [position.offset for position in found.values()] == [len(VALUES)]
    assert link.report().topics()[link.name(A, "late")].owed == {}


def test_what_is_only_shown_changes_nothing(link: LinkByHand) -> None:
    """It created the status topic of a link that had never run."""
    status = link.config.messages.status_topic
    delete_topic(link.front, status)
    shown = ask_for_switch(link.config, A, LEVEL, C, rewind=False, execute=False)
    assert (shown["from"], shown["unforwarded"]) == (None, [])
    assert status not in link.source.topic_names()
    ask_for_switch(link.config, A, LEVEL, C, rewind=False, execute=True)
    assert status in link.source.topic_names()


def other_file(link: LinkByHand, *, name: str | None) -> ClustersConfig:
    """The clusters' file with another name for `c`, or without it."""
    body = yaml.safe_load(link.path.read_text())
    body["clusters"] = [
        {**one, "name": name if one["name"] == C else one["name"]}
        for one in body["clusters"]
        if name is not None or one["name"] != C
    ]
    body["tree"]["children"][1] = {"level": 1, "children": ["b", name]} if name else "b"
    changed = link.path.with_name("changed.yaml")
    changed.write_text(yaml.safe_dump(body))
    return load(changed)


def chosen_by(config: ClustersConfig, link: LinkByHand) -> Link:
    distributor = config.checked_tree().distributor(A, LEVEL)
    return choose_target(config, distributor, link.source, link.report())


def gone_on_at_c(link: LinkByHand) -> tuple[str, int]:
    """The link was switched from `b` to `c`, and has copied on. The place of its topic at `b`."""
    copied_to_b(link, "flights")
    link.create("flights", C)
    ask(link)
    choose_target(link.config, link.distributor, link.source, link.report())
    link.stands({"flights": 5}, C)
    return link.name(B, "flights"), 0


def test_a_target_that_has_another_name_in_the_file_is_found(link: LinkByHand) -> None:
    """The link went to the first target of the file, to where it had left it, and all that it had
    copied since arrived a second time.
    """
    gone_on_at_c(link)
    assert chosen_by(other_file(link, name="new"), link).target == "new"
    assert link.report().target == "new"


def test_a_target_that_the_file_does_not_have_any_more_is_left_by_a_switch(
    link: LinkByHand,
) -> None:
    at_b = gone_on_at_c(link)
    config = other_file(link, name=None)
    with pytest.raises(
        KafkaException, match=r"the file has no cluster c.*keyway distribute switch"
    ):
        chosen_by(config, link)
    assert link.report().target == C
    shown = ask_for_switch(config, A, LEVEL, B, rewind=False, execute=True)
    assert (shown["from"], shown["problem"]) == (C, "")
    assert "the file has no cluster c" in shown["positions_as_reported"]
    chosen = chosen_by(config, link)
    assert chosen.target == B
    assert link.side(B).positions(chosen.group, [at_b])[at_b].offset == 5
