"""Half of a target is away, and with it the only replica of a partition."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from offsets.core.plan import Refusal
from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import QUICK_TURNS, create_topic
from tests.rig.offset_clusters import (
    PlainLink,
    Services,
    commit,
    committed,
    produce_at,
    values,
    write_config,
)

pytestmark = [pytest.mark.deep, pytest.mark.integration]

TWICE = {"default.replication.factor": "2", "offsets.topic.replication.factor": "2"}


def test_a_partition_without_a_leader_keeps_no_other_group_waiting(
    pair: Addresses,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a group stood there had to be read again, and every round failed with that: no group of
    the cluster was moved any more.
    """
    monkeypatch.setattr("offsets.partitions.RECENT_ROWS_MIN", 1)
    monkeypatch.setattr("offsets.partitions.RECENT_ROWS_MAX", 1)
    monkeypatch.setattr("offsets.read_again.REREAD_S_MAX", 2.0)
    topic, well, ill = (fresh_name(name) for name in ("topic", "well", "ill"))
    with KafkaCluster(2, share_groups=False, properties=QUICK_TURNS | TWICE) as kafka:
        create_topic(pair["A"], topic, partitions=2)
        create_topic(kafka.bootstrap_servers, topic, assignment=[[1], [2]])
        with closing(PlainLink(("A", pair["A"]), kafka.bootstrap_servers)) as link:
            for partition in (0, 1):
                produce_at(pair["A"], topic, values(0, 50), partition=partition)
                link.copy(topic, partition)
        addresses = {"A": pair["A"], "B": kafka.bootstrap_servers}
        path = write_config(tmp_path, addresses, refresh_ms=1_000)
        with Services.of(path) as services:

            def moved(group: str, partition: int, offset: int) -> bool:
                row = services.row("B", group, topic, partition)
                return row is not None and row.changes and row.new == offset

            for partition, group in enumerate((well, ill)):
                commit(pair["A"], group, topic, 3, partition=partition)
            services.until(lambda: moved(well, 0, 3) and moved(ill, 1, 3), what="both on B")
            kafka.brokers[1].kill()
            for partition, group in enumerate((well, ill)):
                commit(pair["A"], group, topic, 5, partition=partition)
            services.until(lambda: moved(well, 0, 5), what="the other one moved", deadline_s=120)
            here = committed(services.config, "B", well)
            assert here[topic, 0].offset == 5
            row = services.row("B", ill, topic, 1)
            assert row.new is None or row.new == 3
            kafka.brokers[1].start()
            services.until(lambda: moved(ill, 1, 5), what="moved, too", deadline_s=120)
            assert Refusal.NOT_INDEXED not in services.row("B", ill, topic, 1).refusals
