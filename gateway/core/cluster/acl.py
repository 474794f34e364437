"""Kafka's permissions: the codes of operations, and the request about READ on a group."""

from __future__ import annotations

from gateway.core.wire.schema import Message

# org.apache.kafka.common.acl.AclOperation codes
READ = 3
WRITE = 4
DELETE = 6
DESCRIBE = 8

HEARTBEAT_VERSION = 3


def heartbeat_of_nobody(group: str) -> Message:
    """The body of a Heartbeat of a member that does not exist: every broker checks READ on the
    group before anything else, and it changes nothing.
    """
    return {"GroupId": group, "GenerationId": -1, "MemberId": ""}
