"""The plan of a link's next query: the start of each topic, by Kafka and by the status topic."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from keyway.clusters.config import ConfigError
from keyway.kafka.asking import Away
from keyway.kafka.identities import Identities
from spark.links import beginning, distribute
from spark.links.distribute import LinkRun
from spark.links.link import Link
from spark.links.own_copies import REASON
from spark.links.plan import Plan
from spark.links.status import LEFT, Json
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Partition, Result
from tests.rig.link_in_memory import C2, CONFIG, COPIED, DEFAULTS, DISTRIBUTOR, RESULT, Side, World


@pytest.fixture(autouse=True)
def look_at_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(
        target: Side, _group: str, _source: str, places: Iterable[Partition], _: object
    ) -> object:
        return {topic: REASON for topic, _ in places if topic in target.copies}

    monkeypatch.setattr(beginning, "topics_copied_before", found)


def test_a_link_without_positions_does_not_copy_all_again() -> None:
    """Its cluster or level has another name now; it copied all retained records, unasked."""
    world = World(there=Side("c2", {"flights": "there"}, copies={"flights"}))
    run = world.process()
    assert starts(run) == {}
    told = run.report.topics()["flights"]
    assert told.state == "stopped"
    assert "--from-start" in told.reason
    run.from_start = True
    assert starts(run) == {0: 0, 1: 0}


def test_a_first_batch_that_was_cut_off_is_copied_again() -> None:
    """Without transactions its records are there, and no position is."""
    world = World(there=Side("c2", {"flights": "there"}))
    assert starts(world.process()) == {0: 0, 1: 0}
    world.there.copies.add("flights")
    assert starts(world.process()) == {0: 0, 1: 0}


def test_a_link_with_positions_goes_on_beside_its_copies() -> None:
    world = World(there=Side("c2", {"flights": "there"}, copies={"flights"}))
    for partition in range(2):
        world.there.committed["flights", partition] = Position(10, "here")
    assert starts(world.process()) == {0: 10, 1: 10}


def starts(run: LinkRun) -> dict[int, int]:
    """Where each partition of the next query begins."""
    plan = run._survey()
    found, plan = run._starts(plan)
    run.report.planned(
        plan.topics, plan.stopped, plan.target_ids, run._epochs.positions(run._reached)
    )
    return {partition: at for (_, partition), at in found.items()}


def test_a_copy_that_an_operator_deletes_is_made_again_from_the_beginning() -> None:
    """It was created by the link itself, and began at its last position: it had a hole."""
    world = World()
    first = world.process()
    assert starts(first) == {0: 0, 1: 0}
    world.copied(first, 0, 1)
    world.there.delete("flights")
    assert starts(world.process()) == {0: 0, 1: 0}


def test_a_copy_is_made_again_also_if_the_process_ends_before_the_first_batch() -> None:
    """The plan was told with the new topic's id and the old one's positions."""
    world = World(there=Side("c2", {"flights": "of an operator"}))
    first = world.process()
    starts(first)
    world.copied(first, 0, 1)
    world.there.delete("flights")
    second = world.process()
    assert starts(second) == {0: 0, 1: 0}
    assert starts(second) == {0: 0, 1: 0}, "of the next query, after a failure"
    world.copied(second, 0)
    assert starts(world.process()) == {0: COPIED, 1: 0}, "of the next process"


def test_a_position_that_kafka_forgets_is_known_of_a_topic_that_the_link_created() -> None:
    """The partition was copied again from its beginning."""
    world = World()
    run = world.process()
    starts(run)
    world.copied(run, 0, 1)
    del world.there.committed["flights", 1]
    assert starts(run) == {0: COPIED, 1: COPIED}
    assert world.there.committed["flights", 1] == Position(COPIED, "here"), "committed again"


def test_a_report_without_the_target_s_id_gets_it_with_the_next_plan() -> None:
    """An earlier version did not tell the id of a topic that the link created."""
    world = World(there=Side("c2", {"flights": "there"}))
    rows: Json = {"0": {"position": COPIED}, "1": {"position": COPIED}}
    old: Json = {"topic_id": "here", "target_id": "", "partitions": rows}
    world.told["topic/c1-level-1/flights"] = old
    for partition in (0, 1):
        world.there.committed["flights", partition] = Position(COPIED, "here")
    assert starts(world.process()) == {0: COPIED, 1: COPIED}
    del world.there.committed["flights", 1]
    assert starts(world.process()) == {0: COPIED, 1: COPIED}


def test_a_report_without_the_target_s_id_fits_no_topic() -> None:
    """Positions that Kafka forgot may be those of a topic that was deleted: twice, but no hole."""
    world = World()
    rows: Json = {"0": {"position": COPIED}}
    old: Json = {"topic_id": "here", "target_id": "", "partitions": rows}
    world.told["topic/c1-level-1/flights"] = old
    assert starts(world.process()) == {0: 0, 1: 0}


def test_a_position_that_was_set_back_is_told() -> None:
    """Told was the furthest one: once Kafka forgot the other, the records between were left out."""
    world = World()
    run = world.process()
    starts(run)
    world.copied(run, 0, 1)
    world.there.committed["flights", 0] = Position(10, "here")
    assert starts(run) == {0: 10, 1: COPIED}
    del world.there.committed["flights", 0]
    assert starts(world.process()) == {0: 10, 1: COPIED}


def test_an_id_that_is_known_only_later_is_worth_a_new_plan() -> None:
    """A broker may not know a topic yet that was created a moment ago."""
    first = Plan({}, {}, {}, {}, {})
    later = Plan({}, {}, {}, {}, {"flights": "there"})
    assert not first.same_work(later)
    assert later.same_work(later)
    assert later.same_work(first), "a topic that is created again is noticed by its positions"


def test_a_topic_that_the_list_lacks_is_asked_for_by_name() -> None:
    """One list without it ended the query, and told that the topic was left."""
    world = World()
    run = world.process()
    starts(run)
    plan = run._survey()
    world.here.unlisted = {"flights"}
    world.there.unlisted = {"flights"}
    assert plan.same_work(run._survey())
    assert starts(run) == {0: 0, 1: 0}, "nor does a new query leave it"
    assert world.there.created == 1
    world.here.delete("flights")
    assert not plan.same_work(run._survey())
    assert starts(run) == {}
    assert run.report.topics()["flights"].state == LEFT


def test_what_changes_at_a_topic_is_found_while_it_is_copied() -> None:
    """The list of topics says nothing of topic ids, nor of configs."""
    world = World()
    run = world.process()
    starts(run)
    plan = run._survey()
    world.here.partitions = 3
    assert not plan.same_work(run._survey())
    world.here.partitions = 2
    world.here.ids["flights"] = "made anew"
    assert not plan.same_work(run._survey())
    world.here.ids["flights"] = "here"
    assert plan.same_work(run._survey())
    run._account([RESULT])
    world.there.settings["message.timestamp.type"] = "LogAppendTime"
    assert "LogAppendTime" in run._survey().stopped["flights"]


def test_a_round_begins_with_the_identities_of_its_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A switch writes to its target, so nothing is chosen before."""
    chosen: list[str] = []

    def choose(*_: object) -> Link:
        chosen.append("target")
        return Link(DISTRIBUTOR, C2)

    monkeypatch.setattr("spark.links.distribute.choose_target", choose)
    ids: dict[str, str | Away] = {"c1": "1", "c2": "1"}
    run = World().process()
    run.identities = Identities(CONFIG, lambda cluster: ids[cluster.name])
    with pytest.raises(ConfigError, match="c1 and c2 are one Kafka cluster"):
        run._round()
    assert chosen == []
    ids["c2"] = Away("no answer")
    run.identities = Identities(CONFIG, lambda cluster: ids[cluster.name])
    with pytest.raises(KafkaException, match="c2: no answer"):
        run._round()
    assert chosen == ["target"], "another one may answer"
    ids["c1"] = Away("no answer")
    run.identities = Identities(CONFIG, lambda cluster: ids[cluster.name])
    with pytest.raises(KafkaException, match="c1: no answer"):
        run._round()
    assert chosen == ["target"]


class _StopTimedOut(Py4JJavaError):  # type: ignore[misc]
    """As Spark's `stop` after `stopTimeout`, without a JVM."""

    def __init__(self) -> None:
        """No exception of Java."""

    def __str__(self) -> str:
        return "java.util.concurrent.TimeoutException: Stream Execution thread did not stop"


def test_a_batch_that_outlives_its_query_is_waited_for() -> None:
    """The next query's tasks and its own would fence each other; the error ended the process."""
    run = World().process()
    stopped, ended = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        raise _StopTimedOut

    def end() -> None:
        run._end(cast(StreamingQuery, SimpleNamespace(stop=stop)))
        ended.set()

    run._idle.clear()
    thread = threading.Thread(target=end)
    thread.start()
    assert stopped.wait(60)
    assert not ended.wait(0.2)
    run._idle.set()
    thread.join(60)
    assert ended.is_set()
    run._idle.clear()
    run.stop.set()  # the process ends, and with it the tasks
    end()


def test_a_topic_that_the_target_refuses_to_create_stops_alone() -> None:
    """Its policy, rights or quotas: the whole link waited, and copied nothing of any topic."""
    here = Side("c1", {"flights": "here", "fares": "fares"})
    world = World(here=here, config=DEFAULTS)
    world.there.refused = {"fares": KafkaError.POLICY_VIOLATION}
    run = world.process()
    plan = run._survey()
    assert plan.topics.keys() == {"flights"}
    assert "refuses to create or grow fares" in plan.stopped["fares"]
    world.there.refused = {"fares": KafkaError._TRANSPORT}
    assert plan.same_work(run._survey()), "it waits, and is not asked for again at each look"
    run._refusals.try_again("fares")
    with pytest.raises(KafkaException):
        run._survey()  # the target is away, and no topic is at fault
    world.there.refused = {}
    assert run._survey().topics.keys() == {"flights", "fares"}
    assert run._refusals.reason("fares") == ""


def test_a_topic_that_may_not_be_read_stops_alone() -> None:
    """It may be described, so it was followed, and Spark's query of all topics failed."""
    here = Side("c1", {"flights": "here", "fares": "fares"}, shown={"fares"})
    world = World(here=here, config=DEFAULTS)
    run = world.process()
    assert starts(run) == {0: 0, 1: 0}
    told = run.report.topics()["fares"]
    assert (told.state, told.reason) == (
        "stopped",
        "this user may not read it on c1: READ is not allowed",
    )
    plan = run._survey()
    assert plan.topics.keys() == {"flights"}
    world.here.shown = set()
    assert not plan.same_work(run._survey()), "it may be read now"


def test_a_topic_that_stops_is_logged_once() -> None:
    run = World().process()
    run._refusals.refused(("fares", 0), "the target refuses it", 0.0)
    with capture_logs() as logs:
        for why in ("no", "no", "other"):
            run._tell_of_stopped({"flights": why, "fares": "the target refuses it"})
    assert [(entry["topic"], entry["why"]) for entry in logs] == [
        ("flights", "no"),
        ("flights", "other"),
    ]


def test_a_topic_that_somebody_else_creates_is_copied_at_once() -> None:
    world = World()
    world.there.refused = {"flights": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    run = world.process()
    assert starts(run) == {}
    assert run.report.topics()["flights"].state == "stopped"
    world.there.ids["flights"] = "of an operator"
    assert starts(run) == {0: 0, 1: 0}
    assert run.report.topics()["flights"].state == "running"


def test_a_topic_that_the_target_refuses_to_grow_stops_alone() -> None:
    world = World()
    run = world.process()
    starts(run)
    world.copied(run, 0, 1)
    world.here.partitions = 3
    world.there.refused = {"flights": KafkaError.POLICY_VIOLATION}
    assert "refuses to create or grow flights" in run._survey().stopped["flights"]
    world.there.partitions = 3
    assert run._survey().stopped == {}


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_topic_whose_partition_has_no_leader_stops_alone(side: str) -> None:
    """One partition whose brokers were away kept a whole link waiting."""
    here = Side("c1", {"flights": "here", "fares": "fares"})
    world = World(here=here, there=Side("c2", {"flights": "1", "fares": "2"}), config=DEFAULTS)
    run = world.process()
    plan = run._survey()
    getattr(world, side).leaderless = {"fares": 1}
    assert starts(run) == {0: 0, 1: 0}
    told = run.report.topics()
    assert (told["flights"].state, told["fares"].state) == ("running", "stopped")
    assert "partition 1 of fares at c" in told["fares"].reason
    assert not plan.same_work(run._survey()), "the query that runs is ended"
    getattr(world, side).leaderless = {}
    assert plan.same_work(run._survey()), "and goes on as soon as there is one"


def test_a_topic_with_too_few_replicas_in_sync_stops_alone() -> None:
    """Each task of it waited for a minute, three times, and then the query of all topics failed."""
    here = Side("c1", {"flights": "here", "fares": "fares"})
    there = Side("c2", {"flights": "1", "fares": "2"}, settings={"min.insync.replicas": "2"})
    world = World(here=here, there=there, config=DEFAULTS)
    run = world.process()
    plan = run._survey()
    there.out_of_sync = {"fares": (1, 1), "flights": (0, 2)}
    here.out_of_sync = {"flights": (0, 1)}
    assert starts(run) == {0: 0, 1: 0}
    told = run.report.topics()
    assert (told["flights"].state, told["fares"].state) == ("running", "stopped")
    assert told["fares"].reason == (
        "partition 1 of fares at c2 takes no records: 1 of its replicas are in sync, and"
        " min.insync.replicas is 2"
    )
    assert not plan.same_work(run._survey()), "the query that runs is ended"
    there.out_of_sync = {}
    assert plan.same_work(run._survey()), "and goes on as soon as they are back"


def test_records_before_one_that_is_left_out_are_copied_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was told to end right then passed them, too, in a topic without a position."""
    skip = CONFIG.messages.model_copy(update={"on_refused": "skip"})
    world = World(config=CONFIG.model_copy(update={"messages": skip}))
    run = world.process()
    plan = run._survey()
    begun, plan = run._starts(plan)
    passed: list[dict[Partition, int]] = []

    def note(_writing: object, places: dict[Partition, int]) -> list[Result]:
        passed.append(places)
        return []

    monkeypatch.setattr(distribute, "between", lambda *_: None)
    monkeypatch.setattr(LinkRun, "_batch", lambda *_: None)
    monkeypatch.setattr(distribute, "passed", note)
    odd = {("flights", 0): 5}
    monkeypatch.setattr(distribute, "unreadable", lambda *_: dict(odd))
    run._unreadable = dict(odd)
    starts, held = run._up_to_unreadable(dict(begun), plan)
    assert (passed[0], starts, list(held.stopped)) == ({}, {}, ["flights"])
    run._reached = dict(odd)
    starts, held = run._up_to_unreadable(dict(begun), plan)
    assert (passed[1], starts["flights", 0], held.stopped) == ({("flights", 0): 6}, 6, {})
    monkeypatch.setattr(distribute, "unreadable", lambda *_: {})
    starts, held = run._up_to_unreadable(dict(begun), plan)  # its topic was made anew
    assert (passed[2], starts["flights", 0], held.stopped) == ({}, 0, {}), "a good record now"


def test_a_log_that_was_cut_stops_its_topic_until_a_position_is_set() -> None:
    """Producers filled it up again within the next look, and their records were left out."""
    world = World()
    run = world.process()
    starts(run)
    world.copied(run, 0, 1)
    world.here.log_end = COPIED - 50
    assert starts(run) == {}
    world.here.log_end = COPIED + 100
    plan = run._survey()
    held = replace(plan, topics={})
    assert not run._beginning.goes_on(plan, held, {})
    assert starts(run) == {}
    run = world.process()
    assert starts(run) == {}, "of the next process"
    world.there.committed["flights", 0] = Position(COPIED - 50, "")
    assert not run._beginning.goes_on(plan, held, {}), "there is another partition"
    world.there.committed["flights", 1] = Position(COPIED, "")  # as it was: somebody has said so
    assert run._beginning.goes_on(plan, held, {})
    assert starts(run) == {0: COPIED - 50, 1: COPIED}
    world.copied(run, 0, 1)
    assert starts(world.process()) == {0: COPIED, 1: COPIED}, "it is over"


def test_a_log_that_was_cut_and_has_grown_again_stops_its_topic() -> None:
    """Between two looks, so that it was never short: the link went on in the middle of others."""
    world = World()
    world.here.epoch = 4
    run = world.process()
    starts(run)
    world.copied(run, 0, 1)
    run = world.process()
    assert starts(run) == {0: COPIED, 1: COPIED}
    assert {at.epoch for at in world.there.committed.values()} == {4}, "also of earlier versions"
    world.here.epoch, world.here.log_end = 6, COPIED + 100
    assert starts(world.process()) == {0: COPIED, 1: COPIED}, "another leader, the same records"
    assert {at.epoch for at in world.there.committed.values()} == {4}, "there is no need to commit"
    read = {("flights", partition): COPIED for partition in range(2)}
    ends = dict.fromkeys(read, COPIED + 100)
    source = cast(KafkaSide, world.here)
    assert run._epochs.fit(source, read, ends), "a batch looks, too"
    assert set(run._epochs.of.values()) == {6}
    world.here.epoch, world.here.epoch_ends = 7, {4: COPIED - 50, 6: COPIED - 50}
    assert not run._epochs.fit(source, read, ends)
    run = world.process()
    assert starts(run) == {}
    told = run.report.topics()["flights"]
    assert "the log was cut" in told.reason
    assert [row.beyond for row in told.partitions.values()] == [COPIED, COPIED]
    world.there.committed.clear()
    assert starts(world.process()) == {}, "the status topic keeps the epochs, too"
    for partition in range(2):
        world.there.committed["flights", partition] = Position(COPIED - 50, "")
    assert starts(world.process()) == {0: COPIED - 50, 1: COPIED - 50}
    assert {at.epoch for at in world.there.committed.values()} == {7}


def test_a_batch_reads_no_log_that_ends_before_its_range() -> None:
    """It was cut after Spark had asked for its end, or a broker that leads no more has answered."""
    world = World()
    run = world.process()
    places = starts(run)
    read = {("flights", partition): at for partition, at in places.items()}
    source = cast(KafkaSide, world.here)
    assert run._epochs.fit(source, read, dict.fromkeys(read, COPIED))
    assert not run._epochs.fit(source, read, dict.fromkeys(read, COPIED + 1))


def test_epochs_of_a_topic_s_earlier_life_tell_nothing() -> None:
    recreated = CONFIG.messages.model_copy(update={"on_recreated": "continue"})
    world = World(config=CONFIG.model_copy(update={"messages": recreated}))
    world.here.epoch, world.here.epoch_ends = 0, {9: -1}
    for partition in range(2):
        world.there.committed["flights", partition] = Position(0, "older", epoch=9)
    world.there.ids["flights"] = "there"
    assert starts(world.process()) == {0: 0, 1: 0}
    stands = {("flights", partition): Position(0, "here", epoch=0) for partition in range(2)}
    assert world.there.committed == stands


def test_records_of_an_empty_partition_that_were_deleted_before_they_were_copied() -> None:
    """A link was away for longer than retention. The partition had no position, so there was no
    gap, and the link began behind what it had missed.
    """
    world = World()
    world.here.log_end = 0
    run = world.process()
    assert starts(run) == {0: 0, 1: 0}
    assert world.there.committed == {}, "the target may be looked at for copies again"
    assert starts(run) == {0: 0, 1: 0}
    assert world.there.committed == {("flights", at): Position(0, "here") for at in range(2)}
    world.here.log_start, world.here.log_end = 5_000, 9_000
    assert starts(world.process()) == {}
    world.there.committed.clear()
    run = world.process()
    assert starts(run) == {}, "the status topic knows it for longer than Kafka"
    told = run.report.topics()["flights"]
    assert "5000 of partition 0" in told.reason
    assert [row.gap for row in told.partitions.values()] == [5_000, 5_000]
