"""A batch that was damaged in upstream's own log: it is tried again, never skipped; the records
before it and all other partitions flow; operators see where, and why.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.damaged_logs import damaged, first_segment
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import keyway, metrics, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

ANSWER_S_MAX = 30.0


def test_a_damaged_batch_is_shown_until_it_is_mended(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    share_group: Callable[..., str],
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(partitions=2), share_group()
    for value in (b"before", b"damaged", b"behind"):  # a batch each
        produce(kafka.bootstrap_servers, name, [(b"k", value)], partition=0)
    produce(kafka.bootstrap_servers, name, [(b"k", b"%d" % at) for at in range(5)], partition=1)
    log = first_segment(kafka, name)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])

    def troubles() -> dict[int, str | None]:
        rows = windows_of(gateway, group)
        return {row["partition"]: row.get("read_trouble") for row in rows}

    with damaged(log, b"damaged"):
        consume_all([member], {(name, 0, 0), *((name, 1, at) for at in range(5))})
        wait_until(lambda: bool(troubles()[0]), what="trouble shown", deadline_s=ANSWER_S_MAX)
        assert troubles() == {
            0: "offset 1: wrong CRC at base offset 1 (CORRUPT_MESSAGE)",
            1: None,
        }
        assert metrics(gateway)["keyway_reader_failing_partitions"] >= 1
        status, said, _ = keyway(gateway, "group", "describe", group)
        assert status == 0
        assert f"{name}-0: nothing more can be read: offset 1: wrong CRC" in said
        tries = metrics(gateway)["keyway_reader_fetches_total"]
        wait_until(
            lambda: metrics(gateway)["keyway_reader_fetches_total"] > tries + 2,
            what="it is tried again",
            deadline_s=ANSWER_S_MAX,
        )
        assert [delivery.value for delivery in member.deliveries if delivery.partition == 0] == [
            b"before"
        ]
    consume_all([member], {(name, 0, 1), (name, 0, 2)})
    assert [delivery.value for delivery in member.deliveries if delivery.partition == 0] == [
        b"before",
        b"damaged",
        b"behind",
    ]
    wait_until(lambda: troubles() == {0: None, 1: None}, what="no trouble", deadline_s=ANSWER_S_MAX)
    member.close()


def test_what_the_reader_does_is_exported(
    gateway: GatewayProcess,
    topic: Callable[..., str],
    share_group: Callable[..., str],
    librdkafka_host: ShareHost,
) -> None:
    name = topic(partitions=1)
    before = metrics(gateway)
    member = librdkafka_host.member(gateway.bootstrap, share_group(), [name])
    produce(gateway.bootstrap, name, [(b"k%d" % at, b"v" * 1_000) for at in range(200)])
    consume_all([member], {(name, 0, at) for at in range(200)})
    member.close()
    after = metrics(gateway)
    grown = {
        count: after[f"keyway_reader_{count}_total"] - before[f"keyway_reader_{count}_total"]
        for count in ("fetches", "fetched_bytes", "refetches", "evicted_batches")
    }
    assert grown["fetches"] >= 1
    assert grown["fetched_bytes"] >= 200_000
    assert grown["refetches"] == grown["evicted_batches"] == 0
