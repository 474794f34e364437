"""The process of a link outlives what goes wrong in its own thread, and says so while it lasts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError

from keyway.clusters.config import ConfigError
from keyway.kafka.identities import Identities
from spark.links import beginning, distribute
from spark.links.distribute import LinkRun
from spark.links.link import Link
from spark.links.plan import Plan
from spark.streaming.produce import PositionMoved
from spark.streaming.unreadable import firsts
from tests.rig.link_in_memory import CONFIG, DEFAULTS, Side, World


def test_a_position_that_moved_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of Spark, before a record that it cannot read, it ended the whole process."""
    run = World().process()

    def moved(self: LinkRun) -> None:
        self.stop.set()
        raise PositionMoved("flights-0: the link was switched away from this target")

    monkeypatch.setattr(LinkRun, "_round", moved)
    run.run()
    assert run.report.fault == "flights-0: the link was switched away from this target"


def test_a_fault_is_over_when_both_clusters_answer_and_there_is_nothing_to_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a query said so. A link without topics was shown as waiting for ever."""
    world = World(here=Side("c1"))
    run = world.process()
    monkeypatch.setattr("spark.links.distribute.choose_target", lambda *_: run._link)
    monkeypatch.setattr(LinkRun, "_aim", lambda _: None)
    monkeypatch.setattr(beginning, "topics_copied_before", lambda *_: {})
    run.report.trouble("c2 was away for a moment")
    assert world.told["link/c1-level-1"]["state"] == "waiting"
    run.stop.set()
    for _ in range(2):  # the second one tells it
        run._round()
    row = world.told["link/c1-level-1"]
    assert (row["state"], row["error"], run.report.running) == ("running", "", True)


class OfJava(Py4JJavaError):  # type: ignore[misc]
    """An exception of the JVM, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)

    def __str__(self) -> str:
        return str(self.args[0])


def test_after_a_failure_the_clusters_are_asked_again_who_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target went away, and its address led to another cluster then, which got all records."""
    ids = {"c1": "1", "c2": "2"}
    run = World().process()
    run.identities = Identities(CONFIG, lambda cluster: ids[cluster.name])
    rounds = 0

    def choose(*_: object) -> Link:
        nonlocal rounds
        rounds += 1
        ids["c2"] = "1"
        raise OfJava("away")

    monkeypatch.setattr("spark.links.distribute.choose_target", choose)
    monkeypatch.setattr(run.stop, "wait", lambda _: None)
    with pytest.raises(ConfigError, match="c1 and c2 are one Kafka cluster"):
        run.run()
    assert rounds == 1


FARES = ("my-fares-2", 1)
TOLD = "Record batch for partition my-fares-2-1 at offset 7 is invalid, cause: Record is corrupt"


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], LinkRun]:
    """A link of two topics. A batch reads up to `reached`, if nothing is damaged before that."""
    here = Side("c1", {"flights": "here", "my-fares-2": "fares"})
    world = World(here=here, there=Side("c2", {"flights": "1", "my-fares-2": "2"}), config=DEFAULTS)

    def round_of(run: LinkRun) -> None:
        run.stop.set()
        raise OfJava(f"Caused by: org.apache.kafka.common.KafkaException: {TOLD}")

    monkeypatch.setattr(LinkRun, "_round", round_of)
    monkeypatch.setattr(distribute, "between", lambda *_: None)
    monkeypatch.setattr(beginning, "topics_copied_before", lambda *_: {})
    return world.process


def begun(run: LinkRun, reached: int, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], Plan]:
    """The topics of the next query, and its plan."""

    def batch(run: LinkRun, *_: object) -> None:
        run._reached[FARES] = reached

    monkeypatch.setattr(LinkRun, "_batch", batch)
    starts, plan = run._up_to_unreadable(*run._starts(run._survey()))
    return {topic for topic, _ in starts}, plan


def test_a_topic_with_a_damaged_batch_stops_alone_and_behind_what_can_be_read(
    damaged: Callable[[], LinkRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's query of all topics failed for ever. Then the records before it waited, too."""
    run = damaged()
    run.run()
    topics, plan = begun(run, 3, monkeypatch)
    assert (topics, TOLD in plan.stopped["my-fares-2"]) == ({"flights"}, True)
    surveyed = run._survey()
    assert surveyed.topics.keys() == {"flights", "my-fares-2"}, "more is copied soon"
    assert run._beginning.goes_on(surveyed, plan, firsts(run._unreadable, run._damaged))
    topics, plan = begun(run, 7, monkeypatch)
    assert (topics, TOLD in plan.stopped["my-fares-2"]) == ({"flights"}, True)
    assert TOLD in run._survey().stopped["my-fares-2"]
    run._refusals.try_again("my-fares-2")
    assert begun(run, 7, monkeypatch)[0] == {"flights", "my-fares-2"}, "it is tried again"


def test_a_damaged_batch_before_which_nothing_can_be_read(
    damaged: Callable[[], LinkRun],
) -> None:
    run = damaged()
    for topics in ({"flights", "my-fares-2"}, {"flights"}):
        run.stop.clear()
        run.run()
        assert run._survey().topics.keys() == topics


def test_an_exception_of_the_jvm_in_the_link_s_own_thread_is_waited_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is read before an unreadable record is read there. A source that went away just then
    ended the process, and all links with it.
    """
    run = World().process()

    def round_of(_: LinkRun) -> None:
        run.stop.set()
        raise OfJava("o54.collectToPython: org.apache.kafka.common.errors.TimeoutException: away")

    monkeypatch.setattr(LinkRun, "_round", round_of)
    run.run()
    assert run.report.fault == "TimeoutException: away"
