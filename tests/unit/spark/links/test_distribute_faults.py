"""The process of a link outlives what goes wrong in its own thread, and says so while it lasts."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from spark.links import beginning
from spark.links.distribute import LinkRun
from spark.streaming.produce import PositionMoved
from tests.rig.link_in_memory import DEFAULTS, Side, World


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


def test_a_topic_with_a_damaged_batch_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's query of all topics failed for ever."""
    here = Side("c1", {"flights": "here", "my-fares-2": "fares"})
    world = World(here=here, there=Side("c2", {"flights": "1", "my-fares-2": "2"}), config=DEFAULTS)
    run = world.process()
    told = (
        "Record batch for partition my-fares-2-1 at offset 7 is invalid, cause: Record is corrupt"
    )

    def round_of(_: LinkRun) -> None:
        run.stop.set()
        raise OfJava(f"Caused by: org.apache.kafka.common.KafkaException: {told}")

    monkeypatch.setattr(LinkRun, "_round", round_of)
    run.run()
    plan = run._survey()
    assert plan.topics.keys() == {"flights"}
    assert told in plan.stopped["my-fares-2"]
    run._refusals.try_again("my-fares-2")
    assert run._survey().topics.keys() == {"flights", "my-fares-2"}, "it is tried again"


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
