"""An upstream whose own share groups are off (share.version 0): Keyway brings them all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, consume_all, deliveries_of
from tests.rig.clients.wire_client import WireClient, fresh_member_id
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, produce

pytestmark = pytest.mark.integration

Name = Callable[[str], str]


@pytest.fixture(scope="module")
def plain_gateway(
    plain_kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("share-off")
    with GatewayProcess(directory, plain_kafka.bootstrap_servers, groups=GROUPS) as process:
        yield process


def test_the_upstream_itself_refuses(plain_kafka: KafkaCluster, fresh_name: Name) -> None:
    """Without this the other tests would prove nothing."""
    body = {
        "GroupId": fresh_name("group"),
        "MemberId": fresh_member_id(),
        "SubscribedTopicNames": ["t"],
    }
    with WireClient(plain_kafka.bootstrap_servers) as client:
        answer = client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
    assert answer["ErrorCode"] == ErrorCode.UNSUPPORTED_VERSION


def test_both_stock_clients_in_one_group(
    plain_gateway: GatewayProcess,
    plain_kafka: KafkaCluster,
    fresh_name: Name,
    java_host: ShareHost,
    librdkafka_host: ShareHost,
) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    create_topic(plain_kafka.bootstrap_servers, topic, partitions=2)
    sent = [(b"k%d" % (at % 50), b"%d" % at) for at in range(1_000)]
    produce(plain_gateway.bootstrap, topic, sent, partition=0)
    produce(plain_gateway.bootstrap, topic, sent, partition=1)
    members = [
        host.member(plain_gateway.bootstrap, group, [topic])
        for host in (java_host, librdkafka_host)
    ]
    wanted = {(topic, partition, offset) for partition in (0, 1) for offset in range(1_000)}
    consume_all(members, wanted)
    assert_never_backwards(deliveries_of(members))
    for member in members:
        member.close()
