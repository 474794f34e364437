"""The overviews of several nodes as one: what a node does is added, what all know is the asked
node's, lines of health say whose they are, and a node that is missing is named.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.dashboard.rows import FlowRow, GroupLine, Overview, TrafficRow
from gateway.admin.rows import HealthRow
from gateway.core import nodes_at_a_glance
from gateway.core.history import KEEPS_UP_S

ALL = 1_000


def line(group: str, **figures: Any) -> GroupLine:
    known: dict[str, Any] = {
        "state": "Stable",
        "members": 3,
        "topics": ["t"],
        "windows": 2,
        "waiting": 1,
        "lag": 70,
        "lag_seconds": 4.0,
        "in_flight": 5,
        "backing_off": 1,
        "dead_lettering": 0,
        "parked": 2,
        "draining_keys": 1,
        "stuck": 0,
        "outcomes": {"accepted": 10},
        "flow": FlowRow(produced=2.0, delivered=3.0, settled=4.0),
        "catches_up_s": 99.0,
        "lately": [1, 70],
    }
    return GroupLine(group=group, **(known | figures))


def said(*lines: GroupLine, status: str = "up", **more: Any) -> dict[str, Any]:
    """As one node answers."""
    health = HealthRow.model_validate(
        {"status": status, "reasons": more.pop("reasons", []), **more.pop("health", {})}
    )
    traffic = TrafficRow(
        connections=4,
        bytes_from_clients=100,
        requests={"fetch": 7},
        answered={"fetch": [1, 2]},
        bounds_ms=[1.0],
    )
    head: dict[str, Any] = {"at_ms": 5, "traffic": traffic, "groups_hidden": 0} | more
    return Overview(health=health, groups=list(lines), **head).model_dump(mode="json")


def together(*answers: dict[str, Any], missing: str = "", most: int = ALL) -> Overview:
    named = dict(zip("abc", answers, strict=False))
    unanswered = [{"node": missing, "reason": "no answer"}] if missing else []
    return Overview.model_validate(nodes_at_a_glance.overview(named, unanswered, most))


def test_what_nodes_do_is_added_and_what_all_know_is_told_once() -> None:
    there = line("g", lag=60, lag_seconds=9.0, parked=3, outcomes={"accepted": 1, "dropped": 2})
    found = together(said(line("g")), said(there, line("h")))
    assert found.nodes == ["a", "b"]
    g, h = found.groups
    assert (g.windows, g.waiting, g.in_flight, g.draining_keys) == (4, 2, 10, 2)
    assert (g.members, g.lag, g.lag_seconds, g.parked) == (3, 70, 4.0, 2)
    assert g.outcomes == {"accepted": 11, "dropped": 2}
    assert g.flow == FlowRow(produced=2.0, delivered=6.0, settled=8.0)
    assert g.catches_up_s == pytest.approx(70 / 6)
    assert h == line("h"), "of a group that one node knows: its own"
    traffic = found.traffic
    assert traffic is not None
    assert (traffic.connections, traffic.bytes_from_clients) == (8, 200)
    assert (traffic.requests, traffic.answered) == ({"fetch": 14}, {"fetch": [2, 4]})


def test_what_this_node_does_not_know_another_may() -> None:
    here = line("g", lag=None, lag_seconds=None, parked=None, flow=FlowRow(), lately=[])
    (g,) = together(said(here), said(line("g"))).groups
    assert (g.lag, g.lag_seconds, g.parked, g.lately) == (70, 4.0, 2, [1, 70])
    assert g.flow == FlowRow(produced=2.0, delivered=3.0, settled=4.0)
    (g,) = together(said(here), said(here)).groups
    assert (g.lag, g.flow, g.catches_up_s) == (None, FlowRow(), None)


def test_a_group_is_stopped_if_no_node_does_anything_for_it() -> None:
    stopped, at_work = line("g", stopped=True), line("g")
    assert together(said(stopped), said(stopped)).groups[0].stopped
    assert not together(said(stopped), said(at_work)).groups[0].stopped
    small = line("g", lag=round(2 * KEEPS_UP_S) - 1)
    assert together(said(small), said(small)).groups[0].catches_up_s is None


def test_health_says_whose_trouble_it_is() -> None:
    shared, own = "Redis does not answer", "a partition cannot be read"
    found = together(
        said(status="not ready", reasons=[shared], health={"warnings": ["w"], "brokers": 3}),
        said(status="not ready", reasons=[shared, own]),
    )
    assert found.health.status == "not ready"
    assert found.health.reasons == [shared, f"node b: {own}"]
    assert found.health.warnings == ["node a: w"]
    assert (found.health.model_extra or {})["brokers"] == 3
    found = together(said(), said(status="not ready", reasons=[own]))
    assert found.health.status == "degraded", "the other one serves"
    assert together(said(), said()).health.status == "up"


def test_a_node_that_is_missing_is_named_and_the_rest_shown() -> None:
    found = together(said(line("g")), said(line("g")), missing="c")
    assert found.health.status == "degraded"
    assert found.health.reasons == ["node c does not answer: no answer"]
    assert [silent.node for silent in found.unanswered] == ["c"]
    assert found.nodes == ["a", "b"]
    assert found.groups[0].windows == 4


def test_so_many_groups_are_shown_and_the_others_counted() -> None:
    found = together(said(line("a"), line("c"), groups_hidden=2), said(line("b")), most=2)
    assert [group.group for group in found.groups] == ["a", "b"]
    assert found.groups_hidden == 3


def test_times_of_other_bounds_are_not_added() -> None:
    other = said()
    other["traffic"] |= {"bounds_ms": [1.0, 2.0], "answered": {"fetch": [1, 1, 1]}}
    traffic = together(said(), other).traffic
    assert traffic is not None
    assert (traffic.answered, traffic.requests) == ({"fetch": [1, 2]}, {"fetch": 14})
    assert together(said(traffic=None), said(traffic=None)).traffic is None


def columns(topic: str | None, at_ms: list[int], **of: list[Any]) -> dict[str, Any]:
    names = ("lag", "produced", "delivered", "settled")
    return {
        "topic": topic,
        "at_ms": at_ms,
        **{name: of.get(name, [None] * len(at_ms)) for name in names},
    }


def past(whole: dict[str, Any], *topics: dict[str, Any]) -> dict[str, Any]:
    return {"group": "g", "whole": whole, "topics": list(topics), "topics_hidden": 0}


def test_histories_meet_in_time() -> None:
    here = columns(None, [10_000, 20_000], lag=[5, None], produced=[1, 1], delivered=[1.0, 2.0])
    there = columns(
        None,
        [9_000, 21_000, 90_000],
        lag=[7, 8, 9],
        produced=[3, 3, 3],
        delivered=[10.0, 20.0, 7.0],
        settled=[4.0, 5.0, 6.0],
    )
    whole = nodes_at_a_glance.history([past(here), past(there)])["whole"]
    assert whole["at_ms"] == [10_000, 20_000]
    assert (whole["lag"], whole["produced"]) == ([5, 8], [1, 1])
    assert (whole["delivered"], whole["settled"]) == ([11.0, 22.0], [4.0, 5.0])


def test_a_history_that_this_node_does_not_have_is_the_other_one_s() -> None:
    none, there = columns(None, []), columns("t", [9_000], delivered=[1.0])
    found = nodes_at_a_glance.history([past(none), past(columns(None, [9_000]), there)])
    assert found["whole"]["at_ms"] == [9_000]
    assert found["topics"] == [there]
    late = columns("t", [90_000], delivered=[5.0])
    found = nodes_at_a_glance.history([past(none, there), past(none, late)])
    assert found["topics"] == [there], "no sample of that time"
    assert nodes_at_a_glance.history([past(none), past(none)])["whole"] == none
