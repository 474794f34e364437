"""One name, one kind of group: a share member does not join where others are at work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import MemberFailed, ShareHost
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
