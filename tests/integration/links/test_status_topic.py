"""The status topic of a real Kafka, whose records are 1 MiB at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from spark.streaming.core.survey import Position, Topic
from tests.rig.link_by_hand import LinkByHand

pytestmark = pytest.mark.integration

WIDE = 10_000


def test_a_topic_of_ten_thousand_partitions_is_told(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """At 3,500 Kafka refused its record, and no topic of the link was copied any more."""
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("wide"))
    topic = Topic("wide", "here", WIDE, {})
    places = {("wide", at): Position(10**9 + at * 7_919, "here", epoch=at) for at in range(WIDE)}
    report = link.report()
    report.planned({"wide": topic}, {}, {"wide": "there"}, places)
    report.publish({place: at.offset + place[1] for place, at in places.items()})
    assert link.report().positions() == places
