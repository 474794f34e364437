"""One name, one kind of group: a share member does not join where others are at work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message as WireMessage
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import MemberFailed, ShareHost
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_name_under_which_consumers_are_at_work(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
    protocol: str,
) -> None:
    """Both would read the same records, and the last commit would set the other's position. When
    the consumers have gone, the group goes on where they were, and so do they when it has gone.
    """
    name, group = topic(), fresh_name("kinds")
    produce(gateway.bootstrap, name, [(b"k%d" % at, b"%d" % at) for at in range(6)])
    config = {
        "bootstrap.servers": gateway.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.subscribe([name])
    wait_until(lambda: consumer.poll(0.5) is not None, what="a record", deadline_s=30)
    consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    refused = librdkafka_host.member(gateway.bootstrap, group, [name])
    with pytest.raises(MemberFailed, match="GROUP_ID_NOT_FOUND"):
        refused.poll_some(20)
    assert f"group='{group}'" in gateway.log_text()
    (place,) = consumer.committed([TopicPartition(name, 0)])
    assert place.offset == 4
    consumer.close()
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    offsets: list[int] = []
    while len(offsets) < 2:
        batch = member.poll_some()
        offsets += [record.offset for record in batch]
        member.settle("ACCEPT", batch)
    assert sorted(offsets) == [4, 5]
    wait_for_committed(kafka, group, name, 0, 6)
    member.close()
    produce(gateway.bootstrap, name, [(b"k", b"6")])
    again = Consumer(config)
    again.subscribe([name])
    came: list[Message] = []

    def comes() -> bool:
        found = again.poll(0.5)
        came.extend([] if found is None else [found])
        return found is not None

    wait_until(comes, what="a record for a consumer, whose name it was before", deadline_s=30)
    assert [(each.error(), each.offset()) for each in came] == [(None, 6)]
    again.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    again.close()
    produce(gateway.bootstrap, name, [(b"k", b"7")])
    back = librdkafka_host.member(gateway.bootstrap, group, [name])
    assert [record.offset for record in back.poll_some()] == [7], "the last who worked was there"
    back.close()


def test_a_name_under_which_an_application_of_streams_is_at_work(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names
) -> None:
    """By Kafka Streams' own protocol (KIP-1071). When it has gone share members join, and when they
    have gone the name is the application's again.
    """
    name, group = topic(), fresh_name("kinds")
    source = {
        "SubtopologyId": "0",
        "SourceTopics": [name],
        "SourceTopicRegex": [],
        "StateChangelogTopics": [],
        "RepartitionSinkTopics": [],
        "RepartitionSourceTopics": [],
        "CopartitionGroups": [],
    }
    beat = {"GroupId": group, "MemberId": "AAAAAAAAAAAAAAAAAAAAAA"}
    joining = {
        **beat,
        "RebalanceTimeoutMs": 10_000,
        "ProcessId": "process",
        "Topology": {"Epoch": 0, "Subtopologies": [source]},
        "ActiveTasks": [],
        "StandbyTasks": [],
        "WarmupTasks": [],
    }
    with (
        WireClient(gateway.bootstrap) as line,
        ShareSession(gateway.bootstrap, group, name) as member,
    ):

        def streams(body: WireMessage) -> int:
            return int(line.call(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, body)["ErrorCode"])

        assert streams(joining) == 0
        refused = member.heartbeat(0, topics=[name])
        assert refused["ErrorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
        assert "members of another kind" in refused["ErrorMessage"]
        assert streams({**beat, "MemberEpoch": -1}) == 0
        member.join()
        assert streams(joining) == ErrorCode.GROUP_ID_NOT_FOUND
        member.leave()
        assert streams(joining) == 0, "whose name it was before"
        assert streams({**beat, "MemberEpoch": -1}) == 0
