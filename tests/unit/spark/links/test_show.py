"""The row of a link, from the records of its status topic."""

from __future__ import annotations

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from keyway.clusters.core.trust import CHECKSUM, Seals
from keyway.kafka.asking import Away
from keyway.service import wall_ms
from spark.links.show import COLUMNS, link_row, links_table
from spark.links.status import PartitionStatus, TopicStatus

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
