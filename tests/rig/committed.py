"""A group's committed offset as any Kafka tool sees it: asked of the upstream broker, not of the
gateway.
"""

from __future__ import annotations

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import DIRECT
from tests.rig.patience import wait_until

# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: a broker that has just
# started, or has its first group.
NO_COORDINATOR_YET = (14, 15, 16)
# The gateway commits every 5 s; the rest is room for a busy machine.
COMMITTED_S_MAX = 60.0


def committed(kafka: KafkaCluster, group: str, topic: str, partition: int) -> tuple[int, str]:
    """Offset and metadata, asked of the only broker; (-1, "") if nothing is committed.

    By hand: confluent-kafka reads metadata past its end (seen with 2.16.1).
    """
    places = [{"Name": topic, "PartitionIndexes": [partition]}]
    asked = {"Groups": [{"GroupId": group, "Topics": places}]}
    answer: Message = {}

    def settled() -> bool:
        nonlocal answer
        with WireClient(kafka.bootstrap_servers) as client:
            answer = client.call(ApiKey.OFFSET_FETCH, 8, asked)["Groups"][0]
        return answer["ErrorCode"] not in NO_COORDINATOR_YET

    wait_until(settled, what=f"the coordinator of {group}", deadline_s=COMMITTED_S_MAX)
    assert answer["ErrorCode"] == 0, answer
    row = answer["Topics"][0]["Partitions"][0]
    return row["CommittedOffset"], row["Metadata"] or ""


def wait_for_committed(
    kafka: KafkaCluster, group: str, topic: str, partition: int, offset: int
) -> None:
    """Waits until the committed offset is `offset`; fails with the one there is.

    Kafka's own share groups keep no committed offset: directly against a broker nothing is checked.
    """
    if DIRECT:
        return
    seen = -1

    def reached() -> bool:
        nonlocal seen
        seen, _ = committed(kafka, group, topic, partition)
        return seen == offset

    try:
        wait_until(reached, what=f"committed offset {offset}", deadline_s=COMMITTED_S_MAX)
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is {seen}") from None


def commit_plain(
    line: WireClient, group: str, topic: str, offset: int = 3, metadata: str = "a plain consumer's"
) -> None:
    """A simple consumer's commit for partition 0, as any tool can for a group without members, as
    soon as the group's coordinator is ready.

    By hand: confluent-kafka does not write metadata as it was given (seen with 2.16.1).
    """
    part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": metadata}
    body = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [part]}]}

    def taken() -> bool:
        line.call(ApiKey.FIND_COORDINATOR, 3, {"Key": group, "KeyType": 0})  # the first makes one
        answer = line.call(ApiKey.OFFSET_COMMIT, 9, body)
        return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0)

    wait_until(taken, what="the commit taken", deadline_s=COMMITTED_S_MAX)
