"""The name of a Key-Shared group is taken at every node, whichever coordinates the group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.wire_client import ShareSession, WireClient
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


def commit_error(address: str, group: str, topic: str) -> int:
    """What a simple consumer's commit gets there, also from who does not coordinate the group."""
    part = {"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": ""}
    body = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [part]}]}
    with WireClient(address) as line:
        answer = line.call(ApiKey.OFFSET_COMMIT, 9, body)
    return int(answer["Topics"][0]["Partitions"][0]["ErrorCode"])


def test_also_at_a_node_that_does_not_coordinate_the_group(
    kafka_pair: KafkaCluster, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    create_topic(kafka_pair.bootstrap_servers, topic)
    nodes = Nodes(tmp_path, kafka_pair, "ab")
    refused = int(ErrorCode.GROUP_ID_NOT_FOUND)
    with nodes.running("ab"):
        a, b = (nodes.nodes[name] for name in "ab")

        def refused_by_both() -> bool:
            return all(commit_error(node.bootstrap, group, topic) == refused for node in (a, b))

        with ShareSession(a.bootstrap, group, topic).join() as member:
            wait_until(refused_by_both, what="the commit refused by both nodes", deadline_s=20)
            member.leave()
        assert refused_by_both(), "also while it is empty"
        a.stop()
        a.start()
        assert commit_error(a.bootstrap, group, topic) == refused, "Redis remembers it"
