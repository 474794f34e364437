"""A stock share consumer whose application hangs: its client goes on sending heartbeats, and its
keys go to the others when its locks end, as from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rig.clients.share_members import ShareHost, accepted_places
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import members_of, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
KEYS = [b"key-%d" % at for at in range(40)]


def silent(gateway: GatewayProcess, group: str) -> int:
    """Members that are, summed over the partitions."""
    return sum(member["silent"] for row in windows_of(gateway, group) for member in row["members"])


def test_the_keys_of_a_consumer_that_polls_no_more_go_to_the_other(
    gateway: GatewayProcess, topic: Topic, share_group: Group, any_host: ShareHost
) -> None:
    """All defaults but a lock of 3 s."""
    name, group = topic(partitions=1), share_group("hung")
    hung = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    produce(gateway.bootstrap, name, [(key, b"1") for key in KEYS])
    held = hung.poll_count(len(KEYS))
    other = any_host.member(gateway.bootstrap, group, [name])
    other.poll()
    produce(gateway.bootstrap, name, [(key, b"2") for key in KEYS])

    def has_all() -> bool:
        other.poll()
        return len(accepted_places([other])) == 2 * len(KEYS)

    wait_until(has_all, what="all keys accepted by the other", deadline_s=60)
    assert {delivery.delivery_count for delivery in other.deliveries if delivery.value == b"1"} == {
        2
    }
    assert silent(gateway, group) == 1
    assert len(members_of(gateway, group)) == 2, "its heartbeats go on"
    hung.acknowledge("ACCEPT", held)
    assert set(hung.commit()) == {"INVALID_RECORD_STATE"}
    wait_until(lambda: silent(gateway, group) == 0, what="the member back", deadline_s=10)
    produce(gateway.bootstrap, name, [(key, b"3") for key in KEYS])
    mine = hung.poll_some()
    assert 0 < len(mine) < len(KEYS), "it has its keys again"
    hung.settle("ACCEPT", mine)
    hung.close()
    other.close()
