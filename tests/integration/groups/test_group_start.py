"""Stock consumers that start together share the records that wait for them: the first does not read
alone until the heartbeats of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.groups import GroupSection
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost, accepted_places
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

RECORDS = 400


def test_two_consumers_that_start_together_share_the_records(
    kafka: KafkaCluster, topic: Callable[..., str], librdkafka_host: ShareHost, tmp_path: Path
) -> None:
    """With the default intervals. The second would have its partitions after a heartbeat interval,
    and by then the first has all.
    """
    name = topic(partitions=1)
    records = [(b"key-%d" % at, b"v") for at in range(RECORDS)]
    produce(kafka.bootstrap_servers, name, records)
    settings: Settings = {
        "match": "*",
        "auto_offset_reset": "earliest",
        "assignment_interval_ms": GroupSection().assignment_interval_ms,
    }
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=[settings]) as gateway:
        warm = librdkafka_host.member(gateway.bootstrap, "warm", [name])
        assert warm.poll_some()
        warm.close()
        members = [librdkafka_host.member(gateway.bootstrap, "start", [name]) for _ in range(2)]
        for member in members:
            member.begin_consume()
        wait_until(
            lambda: len(accepted_places(members)) == RECORDS, what="all accepted", deadline_s=60
        )
        for member in members:
            member.end_consume()
        shares = sorted(
            len({delivery.offset for delivery in member.deliveries}) for member in members
        )
        assert shares[0] >= RECORDS // 4, f"shares: {shares}"
        for member in members:
            member.close()
