"""The row of a link, from the records of its status topic."""

from __future__ import annotations

import pytest

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from keyway.clusters.core.trust import CHECKSUM, Seals
from keyway.kafka.asking import Away
from keyway.service import wall_ms
from keyway.terminal.exits import Exit
from spark.links.show import COLUMNS, STALE_MS, exit_of, link_row, links_table
from spark.links.status import Json, PartitionStatus, TopicStatus

AMS = Distributor(ClusterName("ams"), Level(1), (ClusterName("fra"),), (ClusterName("fra"),))


def test_a_link_with_its_topics_or_one_of_them() -> None:
    running = {"state": "running", "target": "fra", "error": "", "updated_ms": wall_ms()}
    topic = TopicStatus().as_json()
    records = {
        "link/ams-level-1": running,
        "topic/ams-level-1/orders": topic,
        "topic/ams-level-1/payments": topic,
        "topic/ams-level-1/gone": topic | {"state": "left"},
        "topic/ams-level-2/orders": topic,
    }
    all_topics = link_row(AMS, records)
    assert all_topics == {
        "link": "ams-level-1",
        "source": "ams",
        "level": 1,
        **running,
        "topics": {"orders": topic, "payments": topic},
    }
    assert link_row(AMS, records, "payments") == {**all_topics, "topics": {"payments": topic}}
    assert link_row(AMS, records, "gone") == {**all_topics, "topics": {}}


def test_the_words_for_seals_without_a_secret() -> None:
    running = {"state": "running", "target": "fra", "error": "", "updated_ms": wall_ms()}
    rows = [
        link_row(AMS, {"link/ams-level-1": {**running, "seals": str(seals)}})
        for seals in (CHECKSUM, Seals(("one",)))
    ]
    unkeyed, keyed = (links_table([row]) for row in rows)
    assert unkeyed.endswith("the seals of ams-level-1: a checksum, which any client can make")
    assert "seals" not in keyed


def test_records_that_the_target_refused_are_shown() -> None:
    topic = TopicStatus(partitions={0: PartitionStatus(doubts=2, left_out=3)}).as_json()
    shown = links_table([link_row(AMS, {"topic/ams-level-1/orders": topic})]).splitlines()
    at = shown[0].split().index("REJECTED")
    assert shown[0].split()[at : at + 2] == ["REJECTED", "REFUSED"]
    row = shown[1].replace("never run", "never-run").split()
    assert row[at : at + 2] == ["2", "3"]
    without = links_table([link_row(AMS, {})]).splitlines()
    assert without[1].replace("never run", "-").split()[3:] == ["-"] * (len(COLUMNS) - 4)


def test_a_partition_that_waits_for_a_transaction_of_its_source() -> None:
    waits = TopicStatus(partitions={0: PartitionStatus(open_at=7), 1: PartitionStatus()})
    shown = links_table([link_row(AMS, {"topic/ams-level-1/orders": waits.as_json()})])
    lines = shown.splitlines()
    assert lines[1].endswith("waits for an open transaction at offset 7")
    assert "waits for" not in lines[2]
    waits.state, waits.reason = "stopped", "too large"
    shown = links_table([link_row(AMS, {"topic/ams-level-1/orders": waits.as_json()})])
    assert shown.splitlines()[1].endswith("too large")


def test_a_link_whose_source_is_away() -> None:
    row = link_row(AMS, Away("no answer"), "orders")
    assert (row["state"], row["error"], row["topics"]) == ("unknown", "no answer", {})


def row_of(state: str, *, age_ms: int = 0, topic: TopicStatus | None = None) -> Json:
    link = {"state": state, "target": "fra", "error": "", "updated_ms": wall_ms() - age_ms}
    topics = {} if topic is None else {"topic/ams-level-1/orders": topic.as_json()}
    return link_row(AMS, {"link/ams-level-1": link, **topics})


@pytest.mark.parametrize("state", ["running", "waiting", "starting"])
def test_a_link_that_is_not_heard_of_is_silent(state: str) -> None:
    """One that hung while it started was shown as starting for ever."""
    assert row_of(state)["state"] == state
    late = row_of(state, age_ms=STALE_MS + 1)
    assert late["state"] == "silent"
    assert late["error"].startswith("not heard of since 20")
    assert row_of("ended", age_ms=STALE_MS + 1)["state"] == "ended"


def test_the_exit_status_of_what_is_shown() -> None:
    """It was 0 of clusters that were away, and of a topic that a gap had stopped."""
    well, late = row_of("running", topic=TopicStatus()), row_of("running", age_ms=STALE_MS + 1)
    stopped = row_of("running", topic=TopicStatus("stopped", "records were deleted"))
    assert exit_of([well, row_of("starting")]) is Exit.DONE
    for amiss in (late, stopped, row_of("waiting"), row_of("ended"), link_row(AMS, {})):
        assert exit_of([well, amiss]) is Exit.REFUSED
    assert exit_of([late, link_row(AMS, Away("no answer"))]) is Exit.AWAY
