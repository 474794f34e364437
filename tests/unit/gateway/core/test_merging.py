"""Answers of several nodes put together: pages lose no row and show none twice, whatever the nodes
have and however they cut; figures are those of the owner, or sums.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core import merging
from gateway.core.merging import Pages

PLACES = Pages("windows", ("topic", "partition"), merging.window)
RECORDS = Pages("parked", ("topic", "partition", "offset"), merging.first)

names = st.sampled_from(["a", "a-1", "b"])
places = st.tuples(names, st.integers(0, 12))
nodes = st.lists(st.sets(places, max_size=12), min_size=1, max_size=4)


def told(has: set[tuple[str, int]], after: tuple[str, int], limit: int) -> dict[str, Any]:
    """As one node answers."""
    rows = sorted(has)
    start = bisect_right(rows, after)
    page = rows[start : start + limit]
    following = PLACES.text_of(page[-1]) if start + limit < len(rows) else None
    shown = [{"topic": place[0], "partition": place[1], "state": "up"} for place in page]
    return {"group": "g", "windows": shown, "next": following}


@given(nodes, st.integers(1, 5))
def test_pages_have_every_row_once_and_in_order(
    has: list[set[tuple[str, int]]], limit: int
) -> None:
    seen: list[tuple[str, int]] = []
    after = ("", -1)
    for _ in range(200):
        page = merging.page(PLACES, [told(held, after, limit) for held in has], limit)
        rows = [(row["topic"], row["partition"]) for row in page["windows"]]
        assert len(rows) <= limit
        seen += rows
        if page["next"] is None:
            break
        topic, partition = PLACES.place_of(page["next"])
        assert (topic, partition) > after
        after = (topic, partition)
    assert seen == sorted(set().union(*has))


def test_a_partition_is_shown_as_its_owner_has_it() -> None:
    idle = {"topic": "t", "partition": 0, "state": "idle", "lag": 7}
    up = {"topic": "t", "partition": 0, "state": "up", "lag": 3}
    loading = {"topic": "t", "partition": 0, "state": "loading"}
    assert merging.window([idle, up]) == up
    assert merging.window([loading, idle]) == loading
    assert merging.window([idle, idle | {"lag": 8}])["lag"] == 7, "that of the asked node"


def test_a_description_has_the_sums_of_the_owners() -> None:
    def said(state: str, other: str, lag: int) -> dict[str, Any]:
        rows = [
            {"topic": "t", "partition": 0, "state": state, "lag": lag, "parked_records": 1},
            {"topic": "t", "partition": 1, "state": other, "lag": 10 - lag},
        ]
        return {"group": "g", "members": 2, "windows": 1, "lag": 99, "partitions": rows}

    found = merging.description([said("up", "idle", 2), said("idle", "up", 9)])
    assert [row["lag"] for row in found["partitions"]] == [2, 1]
    assert (found["windows"], found["lag"], found["parked"]) == (2, 3, 1)
    assert found["members"] == 2


def test_a_key_is_where_it_has_records() -> None:
    def key(state: str, partition: int, first_offset: int | None) -> dict[str, Any]:
        row = {"topic": "t", "partition": partition, "state": state, "records": 0}
        return row | {"first_offset": first_offset}

    idle, busy = key("idle", 0, None), key("parked", 3, 17)
    answers = [{"keys": [idle]}, {"keys": [busy]}]
    assert merging.named_keys(answers, 100) == {"keys": [busy], "next": None}
    assert merging.named_keys([{"keys": [idle]}, {"keys": [key("idle", 1, None)]}], 9)["keys"] == [
        idle
    ]


def test_hot_keys_of_all_nodes_are_one_ranking() -> None:
    def key(partition: int, records: int) -> dict[str, Any]:
        return {"topic": "t", "partition": partition, "records": records}

    answers = [{"keys": [key(0, 9), key(0, 4)]}, {"keys": [key(1, 9), key(1, 5)]}]
    ranked = merging.hot_keys(answers, 3)["keys"]
    assert [(row["partition"], row["records"]) for row in ranked] == [(0, 9), (1, 9), (1, 5)]


def test_members_and_groups() -> None:
    figures = dict.fromkeys(("ready_keys", "in_flight", "draining_keys", "connections"), 1)
    one = {"member_id": "m", "last_heartbeat_ms": 5, **figures}
    both = merging.member([one, one | {"last_heartbeat_ms": 9}])
    assert (both["in_flight"], both["connections"], both["last_heartbeat_ms"]) == (2, 2, 9)
    row = {"group": "g", "windows": 2, "lag": None, "parked": 0}
    found = merging.group([row, row | {"lag": 4, "parked": 3}])
    assert (found["windows"], found["lag"], found["parked"]) == (4, 4, 0)


def test_what_was_released_is_told_by_partition() -> None:
    def said(partition: int, records: int) -> dict[str, Any]:
        return {"records": records, "partitions": [{"topic": "t", "partition": partition}]}

    found = merging.released([said(1, 2), said(0, 3)])
    assert found["records"] == 5
    assert [row["partition"] for row in found["partitions"]] == [0, 1]


def test_a_partition_that_one_node_has_decided_about_has_not_failed() -> None:
    failed = {"topic": "t", "partition": 0, "failed": "it moves"}
    done = {"topic": "t", "partition": 0, "failed": None}
    for rows in ([failed, done], [done, failed], [failed, done, failed]):
        found = merging.released([{"records": 1, "partitions": [row]} for row in rows])
        assert found["partitions"] == [done]
    assert merging.released([{"records": 0, "partitions": [failed]}] * 2)["partitions"] == [failed]


def test_the_effect_of_filters_is_that_on_the_keys_of_all_nodes() -> None:
    one = {"group": "g", "members": ["m"], "keys": {"known": 0, "moved": 0, "dropped": 0}}
    other = one | {"keys": {"known": 5, "moved": 3, "dropped": 2}}
    assert merging.filter_effects([one, other]) == other


def test_a_place_with_a_dash_in_its_topic() -> None:
    assert RECORDS.place_of("eu-orders-3-17") == ("eu-orders", 3, 17)


def repartition(topic: str, version: int, *, leads: bool, **changes: Any) -> dict[str, Any]:
    row = {
        "topic": topic,
        "version": version,
        "leads": leads,
        "into": None,
        "error": None,
        "waits_for": ["the lead"] if leads else ["node a takes the steps"],
        "producers": [],
        "late_records": 0,
        "late_partitions": [],
        "closed_connections": 0,
    }
    return row | changes


def of(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Each row from a node of its own."""
    found = merging.repartitions([{"repartitions": [row]} for row in rows])["repartitions"]
    assert isinstance(found, list)
    return found


def test_a_repartition_is_as_the_node_that_takes_its_steps_has_it() -> None:
    here = repartition("t", 3, leads=False, producers=["c1"], late_records=2, late_partitions=[1])
    lead = repartition(
        "t", 3, leads=True, producers=["c2"], late_records=1, late_partitions=[0, 1]
    ) | {"closed_connections": 4}
    for rows in ((here, lead), (lead, here)):
        (row,) = of(*rows)
        assert row["waits_for"] == ["the lead"]
        assert sorted(row["producers"]) == ["c1", "c2"]
        assert (row["late_records"], row["late_partitions"]) == (3, [0, 1])
        assert row["closed_connections"] == 4
    (moves,) = of(here | {"into": "u"}, lead | {"into": "u"})
    assert moves["late_records"] == 2, "all nodes look at the same logs"


def test_a_step_that_the_lead_has_not_heard_of_is_shown() -> None:
    lead = repartition("t", 2, leads=True)
    (row,) = of(lead, repartition("t", 3, leads=False, error="Redis"))
    assert (row["version"], row["error"]) == (3, "Redis")
    new = repartition("new", 1, leads=False)
    assert [row["topic"] for row in of(lead, new)] == ["new", "t"]
