"""What a link keeps of topics that it followed once."""

from __future__ import annotations

from typing import cast

import pytest

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links import reports
from spark.links.reports import LinkReport
from spark.links.status import LEFT, Json, StatusTopic
from spark.streaming.core.survey import Position, Topic
from spark.streaming.limits import LEFT_ASKED_AT_ONCE, LEFT_KEPT_MS
from tests.rig.link_status import Kept

C1, C2 = ClusterName("c1"), ClusterName("c2")
MINUTE_MS = 60_000
DAYS = 24 * 60 * MINUTE_MS


class Following:
    """A link whose source has other topics from time to time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = 1_700_000_000_000
        monkeypatch.setattr(reports, "wall_ms", lambda: self.clock)
        self.told: dict[str, Json] = {}
        self.there: set[str] = set()
        self.asked: list[str] = []
        self.report = self.started()

    def started(self) -> LinkReport:
        self.kept = Kept(self.told)
        status = cast(StatusTopic, self.kept)
        report = LinkReport(Distributor(C1, Level(1), (C2,), (C2,)), status)
        report.load()
        return report

    def absent(self, names: list[str]) -> set[str]:
        self.asked += names
        return set(names) - self.there

    def round(self, *topics: str) -> None:
        found = {name: Topic(name, "id", 1, {}) for name in topics}
        self.report.planned(found, {}, {}, {(name, 0): Position(5, "id") for name in topics})
        self.report.forget_left(self.absent)

    def rows(self) -> set[str]:
        prefix = "topic/c1-level-1/"
        return {key.removeprefix(prefix) for key in self.told if key.startswith(prefix)}


def test_a_status_topic_that_was_deleted_gets_all_rows_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker made it anew for the next write, not compacted, and rows at rest were not in it."""
    link = Following(monkeypatch)
    link.round("stays")
    link.kept.deleted = True
    link.report.load()
    link.round("stays", "new")
    assert link.rows() == {"stays", "new"}


def test_topics_that_come_and_go_for_a_year_leave_a_week_s_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row of each was kept for ever, in the process and in the status topic."""
    link = Following(monkeypatch)
    for number in range(365):
        link.round("stays", f"day-{number}")
        link.clock += DAYS
    assert link.rows() == link.report.topics().keys()
    assert link.rows() == {"stays", *(f"day-{day}" for day in range(365 - 9, 365))}
    assert len(link.report._told) == len(link.rows()) + 1, "and the link's own"
    assert len(link.asked) == len(set(link.asked)), "each is asked for once"


def test_a_topic_is_forgotten_only_if_the_source_has_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been excluded for a time: then its positions are needed again."""
    link = Following(monkeypatch)
    link.there = {"excluded"}
    link.round("excluded", "deleted", "stays")
    link.round("stays")
    link.clock += LEFT_KEPT_MS
    link.round("stays")
    assert link.asked == []
    link.clock += 1
    link.report = link.started()  # since when a topic is left outlives the process
    link.round("stays")
    assert sorted(link.asked) == ["deleted", "excluded"]
    assert link.rows() == {"excluded", "stays"}
    assert link.report.positions()["excluded", 0].offset == 5
    link.round("stays")
    assert len(link.asked) == 2, "it is asked for again a week later"
    link.round("excluded", "stays")
    link.clock += 2 * LEFT_KEPT_MS
    link.round("stays")
    assert link.rows() == {"excluded", "stays"}, "the week begins anew"


def test_rows_of_an_earlier_version_are_kept_for_a_week_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Following(monkeypatch)
    link.told["topic/c1-level-1/old"] = {"state": LEFT, "partitions": {"0": {"position": 5}}}
    link.report = link.started()
    link.round("stays")
    assert link.rows() == {"old", "stays"}
    link.clock += LEFT_KEPT_MS + 1
    link.report = link.started()
    link.round("stays")
    assert link.rows() == {"stays"}


def test_a_great_many_are_forgotten_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Following(monkeypatch)
    link.round(*(f"many-{number}" for number in range(LEFT_ASKED_AT_ONCE + 1)))
    link.round()
    link.clock += LEFT_KEPT_MS + 1
    link.round()
    assert len(link.rows()) == 1
    link.round()
    assert link.rows() == set()


def test_a_process_that_has_lost_the_lease_tells_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wrote "ended" and its older rows over those of its successor."""
    link = Following(monkeypatch)
    link.round("flights")
    before = dict(link.told)
    link.report.silence()
    link.report.runs("flights")
    link.report.ended()
    assert (link.told, link.report.running) == (before, False)


def test_nothing_is_told_before_the_last_run_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link's target and generation were overwritten."""
    link = Following(monkeypatch)
    link.report.targeted(C2, 7)
    told = dict(link.told)
    status = cast(StatusTopic, link.kept)
    report = LinkReport(Distributor(C1, Level(1), (C2,), (C2,)), status)
    report.trouble("the source is away")
    report.ended()
    assert (link.told, report.fault) == (told, "the source is away")
    report.load()
    report.ended()
    assert (report.target, report.generation) == (C2, 7)
    assert link.told["link/c1-level-1"]["state"] == "ended"
