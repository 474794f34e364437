"""The groups that follow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.clusters.core.tree import ClusterName, Level
from keyway.kafka.asking import Away
from keyway.kafka.identities import Identities
from offsets.client import ClusterClient, TopicFacts
from offsets.core.entries import ENTRY, Entry, encode_entry, key_of
from offsets.core.plan import Refusal
from offsets.distributor import Forwarder
from offsets.errors import ClusterAway, NotReadable, OffsetsError
from offsets.limits import BEAT_S, TARGETS_LOOKED_S
from offsets.service import Service, followed_group
from offsets.state_topic import StateTopic


def config(**sections: Any) -> ClustersConfig:
    return ClustersConfig.model_validate(
        {
            "clusters": [
                {"name": "ams", "bootstrap_servers": "127.0.0.1:1"},
                {"name": "fra", "bootstrap_servers": "127.0.0.1:2"},
            ],
            "tree": {"level": 1, "children": ["ams", "fra"]},
            **sections,
        }
    )


def test_groups_are_named_before_their_offsets_are_moved() -> None:
    found = config()
    with pytest.raises(ConfigError, match="groups: is missing: which groups follow"):
        followed_group(found, ClusterClient(found.clusters[0]))
    with pytest.raises(ValueError, match="include"):
        config(groups={"exclude": ["test-*"]})


def test_own_groups_never_follow() -> None:
    found = config(groups={"include": ["*"], "exclude": ["test-*"]})
    wanted = followed_group(found, ClusterClient(found.clusters[0]))
    names = ("billing", "test-1", "keyway-link-ams-level-1", "spark-kafka-source-1", "__amazon")
    assert [name for name in names if wanted(name)] == ["billing"]


def test_no_round_before_the_state_topic_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise commits made here count as a group's own, and older entries as the newest."""
    service = Service(config(groups={"include": ["*"]}), "ams")
    read_to_end = False
    done: list[str] = []
    monkeypatch.setattr(service.state_topic, "ensure", lambda: None)
    monkeypatch.setattr(service.state_topic, "read", lambda **_: read_to_end)
    monkeypatch.setattr(service, "_poll", lambda: done.append("poll"))
    monkeypatch.setattr(service, "_refresh", lambda: done.append("refresh"))
    for _ in range(3):
        service.round()
    assert done == []
    read_to_end = True
    service.round()
    assert done == ["poll", "refresh"]
    service.close()


def test_a_topic_is_asked_for_before_its_absence_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry comes while the round has begun already, and is decided on in that round."""
    service = Service(config(groups={"include": ["*"]}, offsets={"apply": False}), "ams")
    entry = Entry("billing", "orders", 0, "fra", 1_000, offset=5, partitions=1)
    arriving = [None, entry]
    asked: set[str] = set()

    def read(**_: float) -> bool:
        if arriving and (one := arriving.pop(0)) is not None:
            service.state_topic.state.read(key_of(ENTRY, one.place, one.source), encode_entry(one))
        return True

    def facts(topics: set[str]) -> dict[str, TopicFacts]:
        asked.update(topics)
        return {
            topic: TopicFacts(partitions=1, create_time=True, topic_id="life") for topic in topics
        }

    monkeypatch.setattr(service.state_topic, "ensure", lambda: None)
    monkeypatch.setattr(service.state_topic, "read", read)
    monkeypatch.setattr(service, "_poll", lambda: None)
    monkeypatch.setattr(service, "_forward", lambda: None)
    monkeypatch.setattr(service.switches, "look", lambda: None)
    monkeypatch.setattr(service.client, "facts", facts)
    monkeypatch.setattr(service.partitions, "follow", lambda *_: None)
    monkeypatch.setattr(service.client, "active_groups", set)
    monkeypatch.setattr(service.state_topic, "write_rows", lambda _: None)
    service.round()
    assert asked == {"orders"}
    assert service.committer.rows[entry.place].refusals == (Refusal.NOT_INDEXED,)
    service.close()


def test_a_refresh_looks_at_some_partitions_and_each_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at 10,000 takes seconds, without a look at commits. New ones are asked for at once."""
    monkeypatch.setattr("offsets.service.LOOKED_AT_ONCE", 2)
    service = Service(config(groups={"include": ["*"]}, offsets={"refresh_ms": 1}), "ams")

    def tell(topic: str) -> None:
        entry = Entry("billing", topic, 0, "fra", 1_000, offset=5, partitions=1)
        service.state_topic.state.read(
            key_of(ENTRY, entry.place, entry.source), encode_entry(entry)
        )

    asked: list[set[str]] = []
    looked: list[list[Any]] = []

    def facts(topics: set[str]) -> dict[str, TopicFacts]:
        asked.append(set(topics))
        return {
            topic: TopicFacts(partitions=1, create_time=True, topic_id="life")
            for topic in topics
            if topic != "gone"
        }

    monkeypatch.setattr(service.client, "facts", facts)
    monkeypatch.setattr(service.switches, "look", lambda: None)
    monkeypatch.setattr(service.partitions, "follow", lambda *_: None)
    monkeypatch.setattr(service.partitions, "look", looked.append)
    names = ["a", "b", "c", "d", "gone"]
    for name in names:
        tell(name)
    service._refresh()
    assert asked == [set(names)], "before the absence of a topic counts"
    assert sorted(service.committer.facts) == ["a", "b", "c", "d"]
    for _ in range(2):
        service.state_topic.state.news()
        service._refreshed = None
        service._refresh()
    assert asked[1:] == [{"c", "d"}, {"gone"}]
    assert [[topic for topic, _ in portion] for portion in looked] == [
        ["a", "b"],
        ["c", "d"],
        ["gone"],
    ]
    assert sorted(service.committer.facts) == ["a", "b", "c", "d"], "of the others they are kept"
    service.partitions.outdated = {"d"}
    tell("e")
    service._refresh()
    assert asked[3] == {"a", "b", "d", "e"}, "the turn, what is new, and what was created anew"
    assert not service.partitions.outdated


def test_nothing_is_written_to_a_cluster_that_is_not_the_one_of_the_file() -> None:
    service = Service(config(groups={"include": ["*"]}), "ams")
    ids: dict[str, str | Away] = {"ams": "1", "fra": Away("no answer")}
    service._identities = Identities(service.config, lambda cluster: ids[cluster.name])
    written: list[str] = []
    state_topic = SimpleNamespace(
        client=SimpleNamespace(name="fra"), write_told=lambda _: written.append("fra")
    )
    link = service.config.checked_tree().distributor(ClusterName("ams"), Level(1))
    forwarder = Forwarder(
        link, [cast(StateTopic, state_topic)], service._identified, service._identities.doubt
    )
    news = [Entry("billing", "orders", 0, "ams", 1_000, offset=5, partitions=1)]
    assert (forwarder.forward(news), forwarder.error) == (0, "fra: no answer")
    ids["fra"] = "1"
    service._identified("ams")
    with pytest.raises(ConfigError, match="ams and fra are one Kafka cluster"):
        forwarder.forward(())
    assert written == []
    service.close()


def test_a_target_that_failed_is_asked_again_who_it_is() -> None:
    """Its address came back as another cluster's, which got the entries."""
    service = Service(config(groups={"include": ["*"]}), "ams")
    ids: dict[str, str | Away] = {"ams": "1", "fra": "2"}
    service._identities = Identities(service.config, lambda cluster: ids[cluster.name])

    def fails(_: object) -> None:
        raise ClusterAway("fra: no answer")

    state_topic = SimpleNamespace(client=SimpleNamespace(name="fra"), write_told=fails)
    link = service.config.checked_tree().distributor(ClusterName("ams"), Level(1))
    forwarder = Forwarder(
        link, [cast(StateTopic, state_topic)], service._identified, service._identities.doubt
    )
    news = [Entry("billing", "orders", 0, "ams", 1_000, offset=5, partitions=1)]
    service._identified("ams")
    assert forwarder.forward(news) == 0
    ids["fra"] = "1"
    with pytest.raises(ConfigError, match="ams and fra are one Kafka cluster"):
        forwarder.forward(())
    service.close()


def test_its_own_cluster_that_failed_is_asked_again_who_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(config(groups={"include": ["*"]}), "ams")
    ids: dict[str, str | Away] = {"ams": "1", "fra": "2"}
    service._identities = Identities(service.config, lambda cluster: ids[cluster.name])

    def fails() -> None:
        raise ClusterAway("ams: no answer")

    monkeypatch.setattr(service, "round", fails)
    service._identified("fra")
    assert not service.round_safely()
    ids["ams"] = "2"
    with pytest.raises(ConfigError, match="fra and ams are one Kafka cluster"):
        service.round_safely()
    service.close()


def test_no_entry_goes_back_after_its_level_was_lowered() -> None:
    written: list[Entry] = []
    state_topic = SimpleNamespace(
        client=SimpleNamespace(name="fra"), write_told=written.extend, topic_id=lambda: "1"
    )
    link = config().checked_tree().distributor(ClusterName("ams"), Level(1))
    forwarder = Forwarder(link, [cast(StateTopic, state_topic)], lambda _: None, lambda _: None)
    older = Entry("billing", "orders", 0, "fra", 1_000, offset=5, partitions=1, flags=0b10)
    assert forwarder.forward([older]) == 0, "fra has a newer one"
    assert forwarder.forward([replace(older, source="ams", flags=0)]) == 1
    assert [entry.source for entry in written] == ["ams"]


def test_a_target_that_was_replaced_by_an_empty_one_gets_all_entries_again() -> None:
    """Those of groups that rest are no news, and were sent when this service started again."""
    service = Service(config(groups={"include": ["*"]}), "ams")
    written: list[Entry] = []
    topic_id: str | None = "1"
    now_s = 0.0

    def told() -> str:
        if topic_id is None:
            raise ClusterAway("fra: no answer")
        return topic_id

    state_topic = SimpleNamespace(
        client=SimpleNamespace(name="fra"),
        write_told=written.extend,
        topic_id=told,
        close=lambda: None,
    )
    (forwarder,) = service._forwarders
    forwarder.identified, forwarder.clock = lambda _: None, lambda: now_s
    forwarder.state_topics = [cast(StateTopic, state_topic)]
    entry = Entry("billing", "orders", 0, "ams", 1_000, offset=5, partitions=1)
    elsewhere = replace(entry, source="fra", flags=1)
    for record in (entry, elsewhere):
        service.state_topic.state.read(
            key_of(ENTRY, record.place, record.source), encode_entry(record)
        )

    def rounds() -> list[str]:
        nonlocal now_s
        written.clear()
        for _ in range(3):
            now_s += TARGETS_LOOKED_S
            service._forward()
            service._underway[0].result()
        return [record.source for record in written]

    assert rounds() == ["ams"]
    topic_id = None
    assert rounds() == [], "away"
    topic_id = "2"
    assert rounds() == ["ams"]
    assert rounds() == []
    service.close()


def test_a_service_tells_that_it_is_alive_and_why_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(config(groups={"include": ["*"]}), "ams")
    fails: OffsetsError | None = None
    told: list[str] = []

    def work() -> None:
        if fails is not None:
            raise fails

    monkeypatch.setattr(service, "round", work)
    monkeypatch.setattr(service, "_identified", lambda _: None)
    monkeypatch.setattr(service._identities, "of", lambda _: "id")
    monkeypatch.setattr(
        service.state_topic, "write_beat", lambda _ms, problem: told.append(problem)
    )
    for fails in (None, ClusterAway("ams: no answer"), NotReadable("not authorised"), None, None):
        service.round_safely()
        if fails is not None:
            service._beat_s -= BEAT_S
    assert told == ["", "not authorised", ""], "and not in every round"
    service.close()
