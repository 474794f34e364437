"""A target that takes 4 MB/s, with the default settings of messages: a batch that takes far longer
than a transaction may, and a switch while it is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from gateway.cli.main import app
from keyway.clusters.config import ClustersConfig
from spark.links.show import Links
from spark.streaming.kafka import KafkaSide
from tests.rig.clients.kafka_tools import CONFIGS, KafkaTools
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.several_clusters import Clusters, clusters, read, running, send

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

TREE = {"level": 2, "children": ["c1", {"level": 1, "children": ["c2", "c3"]}]}
TOPIC, PARTITIONS = "slow", 2
# A minute at that rate: the link hears of the switch, and its batch has 10 s to end before it goes.
RECORDS, VALUE_BYTES = 240_000, 1_000
RATE_BYTES_PER_S = 4_000_000
GROUP = "keyway-link-c1-level-2"
DEFAULTS = {"trigger_interval_ms": 1_000}  # the rig's own is quicker


@pytest.fixture(scope="module")
def three(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    quota = f"producer_byte_rate={RATE_BYTES_PER_S}"
    with clusters(("c1", "c2", "c3"), tmp_path_factory.mktemp("clusters")) as some:
        for name in ("c2", "c3"):
            said = kafka_tools.run(
                CONFIGS,
                some.kafkas[name].bootstrap_servers,
                *("--alter", "--add-config", quota),
                *("--entity-type", "clients", "--entity-default"),
            )
            assert "Completed" in said, said
        yield some


def copied(config: ClustersConfig, target: str) -> int:
    """By the positions on the target."""
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
    try:
        found = KafkaSide(config.cluster(target)).positions(GROUP, places)
    except KafkaException:  # Its coordinator has just started.
        return 0
    return sum(position.offset for position in found.values())


def lag(config: ClustersConfig) -> int:
    """As the link says itself; 0 before it says anything."""
    (found,) = (row for row in Links(config).look() if row["link"] == "c1-level-2")
    rows = found["topics"].get(TOPIC, {}).get("partitions", {})
    return sum(row["lag_records"] for row in rows.values())


def test_a_switch_while_a_long_batch_is_in_flight(spark: SparkSession, three: Clusters) -> None:
    """Nothing is twice and nothing out of order: what the old target has is the beginning, and the
    new one has the rest. Without the fence 12,500 records were on both.
    """
    config = three.write(TREE, topics={"include": [TOPIC]}, messages=DEFAULTS)
    for name in ("c1", "c2", "c3"):
        create_topic(three.front(name), TOPIC, partitions=PARTITIONS)
    filler = bytes(VALUE_BYTES)
    records = [
        {"key": b"%d" % (at % 50), "value": b"%d " % at + filler, "partition": at % PARTITIONS}
        for at in range(RECORDS)
    ]
    send(three.front("c1"), TOPIC, records)
    switch = ["distribute", "switch", str(three.path), "--cluster", "c1", "--level", "2"]
    with running(spark, config, "c1", level=2):
        seen, lags = [0], [0]

        def goes_on() -> bool:
            if (now := copied(config, "c2")) > seen[-1]:
                seen.append(now)
            lags.append(lag(config))
            return len(seen) > 4 and len(set(lags) - {0}) > 2

        wait_until(goes_on, what="commits, one after the other", deadline_s=240, every_s=0.2)
        shown = [known for known in lags if known]
        assert shown == sorted(shown, reverse=True), "it falls while the batch goes on"
        assert seen[-1] < RECORDS, "the batch was over before the switch"
        done = CliRunner().invoke(app, [*switch, "--to", "c3", "--execute"])
        assert done.exit_code == 0, done.output
        wait_until(
            lambda: copied(config, "c3") == RECORDS, what="the rest", deadline_s=480, every_s=1.0
        )
    old, new = (read(three.front(cluster), TOPIC, PARTITIONS) for cluster in ("c2", "c3"))
    for partition in range(PARTITIONS):
        offsets = [
            record.origin("c1", TOPIC).offset
            for record in [*old, *new]
            if record.partition == partition
        ]
        assert offsets == [*range(RECORDS // PARTITIONS)]
    assert old
    assert new
