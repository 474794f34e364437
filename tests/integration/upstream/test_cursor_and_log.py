"""A committed position and the log behind it that do not fit, with stock share consumers on a real
Kafka: nothing that can be read is skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.embedded.kafka import KafkaCluster
from keyway.commit_metadata.core.metadata import encode as encode_commit
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import WireClient
from tests.rig.committed import commit_plain, committed, wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
ANSWER_S_MAX = 30.0
RECORDS = 10
OURS = encode_commit(4, [(6, 7)])  # offsets 6 and 7 are settled behind the cursor 4


@pytest.mark.parametrize(
    ("offset", "metadata", "wanted"),
    [
        pytest.param(4, OURS, [4, 5, 8, 9], id="ours"),
        pytest.param(4, "", [4, 5, 6, 7, 8, 9], id="none"),
        pytest.param(4, "written by another tool", [4, 5, 6, 7, 8, 9], id="foreign"),
        pytest.param(4, OURS[:-1], [4, 5, 6, 7, 8, 9], id="cut off"),
        pytest.param(3, OURS, [3, 4, 5, 6, 7, 8, 9], id="of another offset"),
        pytest.param(1_000, "", [], id="beyond the log's end"),
        pytest.param(1_000, encode_commit(1_000, [(1_002, 1_002)]), [], id="both"),
    ],
)
def test_a_position_that_somebody_committed(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
    offset: int,
    metadata: str,
    wanted: list[int],
) -> None:
    """Metadata that is not ours, or of another offset, means everything from the offset on,
    inclusive. An offset beyond the end of the log says that all before it is processed, and that
    the log has lost its tail: the group goes on at its end.
    """
    name, group = topic(), share_group()
    produce(gateway.bootstrap, name, [(b"key-%d" % at, b"%d" % at) for at in range(RECORDS)])
    with WireClient(kafka.bootstrap_servers) as line:
        commit_plain(line, group, name, offset, metadata)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    member.begin_consume()
    wait_for_committed(kafka, group, name, 0, RECORDS)
    member.end_consume()
    assert sorted(delivery.offset for delivery in member.deliveries) == wanted
    member.close()


def test_retention_ran_past_a_committed_position(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    any_host: ShareHost,
) -> None:
    """All that is left of the group is its commit, and the log starts behind it: the group goes on
    at the log start, settled records behind that are settled still, and the commit moves.
    """
    name, group = topic(), share_group()
    produce(gateway.bootstrap, name, [(b"key-%d" % at, b"%d" % at) for at in range(RECORDS)])
    settled = encode_commit(2, [(4, 4), (7, 7)])
    with WireClient(kafka.bootstrap_servers) as line:
        commit_plain(line, group, name, 2, settled)
    place = TopicPartition(name, 0, 6)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([place])[place].result(ANSWER_S_MAX)
    member = any_host.member(gateway.bootstrap, group, [name])
    member.begin_consume()
    wait_for_committed(kafka, group, name, 0, RECORDS)
    member.end_consume()
    assert sorted(delivery.offset for delivery in member.deliveries) == [6, 8, 9]
    member.close()


def test_a_topic_that_is_created_anew_while_the_group_reads(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    any_host: ShareHost,
) -> None:
    """Another topic of the same name: it is read from its start, whatever was settled before."""
    name, group = topic(), share_group()
    produce(gateway.bootstrap, name, [(b"k", b"old")] * RECORDS)
    member = any_host.member(gateway.bootstrap, group, [name])
    member.begin_consume()
    wait_for_committed(kafka, group, name, 0, RECORDS)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(ANSWER_S_MAX)
    wait_until(
        lambda: name not in admin.list_topics(timeout=ANSWER_S_MAX).topics,
        what="the topic deleted",
        deadline_s=ANSWER_S_MAX,
    )
    create_topic(kafka.bootstrap_servers, name)
    produce(kafka.bootstrap_servers, name, [(b"k", b"new-%d" % at) for at in range(3)])
    wait_until(
        lambda: len(member.deliveries) >= RECORDS + 3,
        what="the records of the new topic",
        deadline_s=90,
    )
    assert [(delivery.offset, delivery.value) for delivery in member.deliveries[RECORDS:]] == [
        (0, b"new-0"),
        (1, b"new-1"),
        (2, b"new-2"),
    ]
    wait_until(
        lambda: committed(kafka, group, name, 0)[0] == 3, what="its own cursor", deadline_s=60
    )
    member.end_consume()
    member.close()
