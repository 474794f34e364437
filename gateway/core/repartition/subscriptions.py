"""What the members of a plain group subscribe to, as a broker describes them."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from gateway.core.wire.schema import Message

_VERSION: Final = 2  # bytes in front, of the client's protocol
_COUNT: Final = Struct(">i")
_LENGTH: Final = Struct(">h")
_AT_WORK: Final = "stable"


def classic_topics(row: Message) -> frozenset[str] | None:
    """The topics of a row of DescribeGroups. None: the group rebalances, and only its members know
    them. Not of groups of Connect or another protocol.
    """
    if row["ProtocolType"] != "consumer" or not row["Members"]:
        return frozenset()
    if row["GroupState"].lower() != _AT_WORK:
        return None
    return frozenset().union(*(_subscribed(member["MemberMetadata"]) for member in row["Members"]))


def consumer_topics(row: Message) -> frozenset[str]:
    """The topics of a row of ConsumerGroupDescribe; those of a pattern as far as it is resolved."""
    named = {name for member in row["Members"] for name in member["SubscribedTopicNames"]}
    for member in row["Members"]:
        for assignment in (member["Assignment"], member["TargetAssignment"]):
            named.update(topic["TopicName"] for topic in assignment["TopicPartitions"])
    return frozenset(named)


def _subscribed(metadata: bytes) -> list[str]:
    """Of ConsumerProtocolSubscription; nothing if it is something else."""
    topics = []
    try:
        (count,) = _COUNT.unpack_from(metadata, _VERSION)
        at = _VERSION + _COUNT.size
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            topics.append(metadata[at : at + size].decode())
            at += size
    except (error, UnicodeDecodeError):
        return []
    return topics
