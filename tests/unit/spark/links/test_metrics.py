"""The metrics of links are their status, at the time of the scrape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links import metrics, reports
from spark.links.metrics import LinkCollector
from spark.links.reports import LinkReport
from spark.links.status import Json, StatusTopic, TopicStatus
from spark.streaming.core.survey import Position, Topic
from tests.rig.link_in_memory import RESULT
from tests.rig.link_status import Kept

C1, C2 = ClusterName("c1"), ClusterName("c2")
LABELS = '{link="c1-level-1",topic="flights"}'


def report_with(partitions: Mapping[str, Json]) -> LinkReport:
    kept = Kept({"topic/c1-level-1/flights": {"partitions": partitions}})
    report = LinkReport(Distributor(C1, Level(1), (C2,), (C2,)), cast(StatusTopic, kept))
    report.load()
    return report


def exported(report: LinkReport) -> list[str]:
    registry = CollectorRegistry()
    registry.register(LinkCollector(lambda: [report]))
    return generate_latest(registry).decode().splitlines()


def link_of(report: LinkReport) -> tuple[str, str]:
    told = report._status.read()["link/c1-level-1"]
    return told["state"], told["error"]


def test_counts_are_summed_over_partitions_and_go_on_from_the_last_run() -> None:
    zero = {"copied": 5, "skipped": 2, "repeats": 1, "doubts": 3, "gap": 4, "lag_records": 7}
    report = report_with({"0": {**zero, "lag_s": 1.5}, "1": {**zero, "lag_s": 9.5}})
    lines = exported(report)
    for name, figure in {
        "copied_records_total": 10,
        "skipped_records_total": 4,
        "repeated_records_total": 2,
        "copy_headers_doubted_total": 6,
        "deleted_records_total": 8,
        "lag_records": 14,
        "lag_seconds": 9.5,
    }.items():
        assert f"keyway_distribution_{name}{LABELS} {float(figure)}" in lines


def test_a_link_that_waits_and_a_topic_that_stops() -> None:
    report = report_with({})
    topic = Topic("flights", "id", 1, {})
    report.planned({"flights": topic}, {"odd": "another partition count"}, {}, {})
    lines = exported(report)
    assert 'keyway_distribution_link_running{link="c1-level-1"} 1.0' in lines
    assert 'keyway_distribution_topics_stopped{link="c1-level-1"} 1.0' in lines
    report.trouble("no answer")
    assert 'keyway_distribution_link_running{link="c1-level-1"} 0.0' in exported(report)


def test_the_cause_of_a_fault_stays_until_a_query_is_well() -> None:
    """Each try told "running" without an error, so that nobody saw a link that never copied."""
    report = report_with({})
    report.planned({}, {}, {}, {})
    report.trouble("long overflow")
    for _ in range(2):
        report.planned({}, {}, {}, {})
        report.publish({})
        assert link_of(report) == ("waiting", "long overflow")
        fault = 'keyway_distribution_fault{cause="long overflow",link="c1-level-1",topic=""} 1.0'
        assert fault in exported(report)
        assert 'keyway_distribution_link_running{link="c1-level-1"} 0.0' in exported(report)
    report.well()
    report.publish({})
    assert link_of(report) == ("running", "")
    assert not [line for line in exported(report) if line.startswith("keyway_distribution_fault{")]


def test_the_reason_of_a_refusal_stays_while_the_topic_is_tried_again() -> None:
    report = report_with({})
    flights = {"flights": Topic("flights", "id", 1, {})}
    report.planned({}, {"flights": "too large"}, {}, {})
    report.planned(flights, {}, {}, {}, {"flights": "too large"})
    assert (report.topics()["flights"].state, report.topics()["flights"].reason) == (
        "stopped",
        "too large",
    )
    fault = 'keyway_distribution_fault{cause="too large",link="c1-level-1",topic="flights"} 1.0'
    assert fault in exported(report)
    report.runs("flights")
    assert (report.topics()["flights"].state, report.topics()["flights"].reason) == ("running", "")


def test_a_place_without_a_position_lags_behind_its_beginning() -> None:
    report = report_with({})
    report.planned({"flights": Topic("flights", "id", 1, {})}, {}, {}, {})
    report.publish({("flights", 0): 50}, {("flights", 0): 20})
    assert f"keyway_distribution_lag_records{LABELS} 30.0" in exported(report)


def test_the_time_without_a_commit_grows_only_while_records_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 1_000_000
    for module in (reports, metrics):
        monkeypatch.setattr(module, "wall_ms", lambda: clock)
    report = report_with({})
    report.planned(
        {"flights": Topic("flights", "id", 1, {})}, {}, {}, {("flights", 0): Position(5, "id")}
    )

    def age(log_end: int) -> float:
        report.publish({("flights", 0): log_end})
        name = f"keyway_distribution_commit_age_seconds{LABELS} "
        (line,) = (
            exported_line for exported_line in exported(report) if exported_line.startswith(name)
        )
        return float(line.removeprefix(name))

    assert age(5) == 0
    clock += 60_000
    assert age(9) == 0, "they wait since now"
    clock += 60_000
    assert age(9) == 60
    place = {"topic": "flights", "partition": 0, "position": 7, "last_timestamp_ms": -1}
    counts = dict.fromkeys(("copied", "skipped", "repeats", "doubts", "left_out"), 0)
    report.copied({**place, **counts})
    clock += 10_000
    assert age(9) == 10
    report.copied({**place, **counts, "position": 9})
    clock += 10_000
    assert age(9) == 0


def test_only_topics_that_changed_are_told_again() -> None:
    report = report_with({})
    names = ("flights", "orders")
    report.planned({name: Topic(name, "id", 1, {}) for name in names}, {}, {}, {})
    published: list[set[str]] = []
    publish = report._status.publish

    def noted(records: Mapping[str, Json | None]) -> None:
        published.append(set(records))
        publish(records)

    report._status.publish = noted  # type: ignore[method-assign]
    report.publish({(name, 0): 5 for name in names}, {(name, 0): 5 for name in names})
    report.publish({("flights", 0): 6, ("orders", 0): 5}, {(name, 0): 5 for name in names})
    told = [{key for key in one if key.startswith("topic/")} for one in published]
    assert told == [{f"topic/c1-level-1/{name}" for name in names}, {"topic/c1-level-1/flights"}]


def test_a_transaction_that_nobody_ends_is_lag_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed records end where it begins: the lag was 0, whatever was produced behind that."""
    clock = 1_000_000
    for module in (reports, metrics):
        monkeypatch.setattr(module, "wall_ms", lambda: clock)
    place = ("flights", 0)
    report = report_with({"0": {"last_timestamp_ms": 990_000}})
    report.planned({"flights": Topic("flights", "id", 1, {})}, {}, {}, {place: Position(5, "id")})

    def published(committed_end: int, high_watermark: int) -> tuple[int, float, int]:
        report.publish({place: committed_end}, {}, {place: high_watermark})
        row = report.topics()["flights"].partitions[0]
        return row.lag_records, row.lag_s, row.open_at

    assert published(5, 5) == (0, 0, -1)
    assert published(5, 9) == (4, 10.0, 5)
    clock += 600_000
    assert published(5, 20) == (15, 610.0, 5)
    assert f"keyway_distribution_lag_seconds{LABELS} 610.0" in exported(report)
    assert f"keyway_distribution_commit_age_seconds{LABELS} 600.0" in exported(report)
    assert published(15, 20) == (15, 610.0, -1), "there is something to copy"
    report.reached({place: Position(21, "id")})
    assert published(21, 20) == (0, 0, -1), "records that came between the two questions"


def test_lag_of_a_partition_of_which_no_record_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1_000_000
    for module in (reports, metrics):
        monkeypatch.setattr(module, "wall_ms", lambda: clock)
    report = report_with({})
    report.planned({"flights": Topic("flights", "id", 1, {})}, {}, {}, {})
    report.publish({("flights", 0): 0}, {}, {("flights", 0): 7})
    clock += 30_000
    report.publish({("flights", 0): 0}, {}, {("flights", 0): 7})
    assert f"keyway_distribution_lag_seconds{LABELS} 30.0" in exported(report)


def test_records_that_are_left_out_have_names() -> None:
    """They are nowhere on the target, and groups that move there go on behind them."""
    report = report_with({})
    why = "offset 7: Broker: Message size too large"
    with capture_logs() as logged:
        report.copied({**RESULT, "left_out": 2, "last_left_out": why})
        report.left_out(("flights", 0), 9)
        report.copied(RESULT)
    assert [(line["records"], line["last"]) for line in logged] == [
        (2, why),
        (1, "offset 9: Spark cannot read its timestamp"),
    ]
    assert {line["event"] for line in logged} == {"records_left_out"}
    row = report.topics()["flights"].partitions[0]
    assert (row.left_out, row.last_left_out) == (3, logged[1]["last"])
    assert f"keyway_distribution_refused_records_total{LABELS} 3.0" in exported(report)


def test_a_topic_that_the_link_does_not_follow_any_more() -> None:
    """It has no lag that could alarm anybody, and goes on where it was if it is followed again."""
    report = report_with({"0": {"position": 5, "copied": 5, "lag_records": 7}})
    report.planned({"other": Topic("other", "id", 1, {})}, {}, {}, {})
    lines = exported(report)
    assert not [line for line in lines if "flights" in line]
    assert report.positions()["flights", 0].offset == 5
    report.planned(
        {"flights": Topic("flights", "id", 1, {})}, {}, {}, {("flights", 0): Position(5, "id")}
    )
    assert f"keyway_distribution_lag_records{LABELS} 7.0" in exported(report)


def test_a_topic_that_rests_costs_a_look_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 10,000 partitions were written out every two seconds, to find that all were told."""
    report = report_with({})
    topics = {name: Topic(name, "id", 1, {}) for name in ("flights", "bags")}
    report.planned(topics, {}, {}, {(name, 0): Position(10, "id") for name in topics})
    ends = {(name, 0): 10 for name in topics}
    report.publish(ends)
    told: list[TopicStatus] = []
    as_json = TopicStatus.as_json

    def noted(topic: TopicStatus) -> Json:
        told.append(topic)
        return as_json(topic)

    monkeypatch.setattr(TopicStatus, "as_json", noted)
    report.publish(ends)
    assert told == []
    report.publish({**ends, ("bags", 0): 12})
    (bags,) = told
    assert bags.partitions[0].lag_records == 2
    told.clear()
    report.planned(topics, {}, {}, {})  # to another topic of the target: from its start
    told.clear()
    report.publish(ends)
    assert [status.partitions[0].lag_records for status in told] == [10, 10]


def test_a_cause_is_no_new_series_for_each_offset_and_address() -> None:
    """The label had the words of the fault: a series for each of them stayed in Prometheus."""
    causes = set()
    for at in range(1_000):
        report = report_with({})
        gaps = ", ".join(f"{at + more} of partition {more}" for more in range(3 + at % 40))
        why = f"records were deleted before they were copied: {gaps}"
        report.planned({}, {"flights": why}, {}, {})
        report.trouble(f"broker-{at}.example:9{at}: no answer after {at} ms")
        causes |= {
            line for line in exported(report) if line.startswith("keyway_distribution_fault")
        }
    assert len(causes) < 10
    assert any(
        'cause="records were deleted before they were copied: … of' in cause for cause in causes
    )
