"""One name, one kind of group: a share member does not join where others are at work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.rig.clients.share_members import MemberFailed, ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_name_under_which_consumers_are_at_work(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
    protocol: str,
) -> None:
    """Both would read the same records, and the last commit would set the other's position. When
    the consumers have gone, the group goes on where they were.
    """
    name, group = topic(), fresh_name("kinds")
    produce(gateway.bootstrap, name, [(b"k%d" % at, b"%d" % at) for at in range(6)])
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
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
    member.close()
