"""The status topic of a real Kafka, whose records are 1 MiB at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import Cluster
from keyway.kafka.asking import Away
from keyway.kafka.identities import Identities
from spark.links.distribute import LinkRun
from spark.links.switch import choose_target
from spark.streaming.core.limits import PARTITIONS_MAX
from spark.streaming.core.survey import Position, Topic
from spark.streaming.orders import Result
from tests.rig.link_by_hand import A, C, LinkByHand
from tests.rig.link_in_memory import RESULT

pytestmark = pytest.mark.integration

WIDE = PARTITIONS_MAX


def test_a_topic_of_ten_thousand_partitions_is_told(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """At 3,500 Kafka refused its record, and no topic of the link was copied any more; later at
    10,000 once there were other counts in each row, and once each had a refused record in words.
    """
    figures = Random(1)
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("wide"))
    topic = Topic("wide", "here", WIDE, {})
    places = {("wide", at): Position(10**9 + at * 7_919, "here", epoch=at) for at in range(WIDE)}
    report = link.report()
    report.planned({"wide": topic}, {}, {"wide": "there"}, places)
    for place, at in places.items():
        result: Result = {**RESULT, "topic": "wide", "partition": place[1]}
        result["copied"], result["skipped"] = figures.randrange(10**6), figures.randrange(10**6)
        result["repeats"], result["doubts"] = figures.randrange(10**6), figures.randrange(10**6)
        result["last_timestamp_ms"] = figures.randrange(10**12)
        result["left_out"] = figures.randrange(10**6)
        refused = figures.randrange(10**12)
        result["last_left_out"] = f"offset {refused}: Broker: Message size too large"
        report.copied(result, at.epoch)
        report.lost("wide", {place[1]: figures.randrange(10**6)}, {place[1]: at})
    report.publish({place: at.offset + figures.randrange(10**6) for place, at in places.items()})
    assert link.report().positions() == places


def test_a_process_that_has_not_read_the_status_overwrites_none_of_it(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """The source answered a moment too late, or the process was told to end at its start. It told
    of a link without a target, and the next one went to the first target of the file and copied all
    of its records there, or stopped at the copies.
    """
    link = LinkByHand(kafka.bootstrap_servers, tmp_path, fresh_name("late"))
    link.create("flights", A, C)
    link.stands({"flights": 3}, C)  # `b` was away when the link began
    stop = threading.Event()

    def late(_cluster: Cluster) -> Away:
        stop.set()
        return Away("no answer in time")

    identities = Identities(link.config, late)
    session = cast(SparkSession, None)
    LinkRun(session, link.config, link.distributor, stop, identities=identities).run()
    report = link.report()
    assert report.target == C
    assert choose_target(link.config, link.distributor, link.source, report).target == C
