"""The operations of REST on topics that get other partitions (the table is in api.py)."""

from __future__ import annotations

from gateway.admin.operation import Operation, Parameter
from gateway.admin.repartition_rows import (
    AbortBody,
    RepartitionBody,
    RepartitionList,
    RepartitionPlan,
    RepartitionRow,
)
from gateway.config.admin import Role

_TOPIC = Parameter("topic", "Only this topic.", {"type": "string"})

REPARTITION_OPERATIONS = (
    Operation(
        "GET",
        "/v1/repartitions",
        "Topics that get other partitions, and the last time that others did.",
        RepartitionList,
        optional=(_TOPIC,),
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/repartitions",
        "More partitions for a topic, or any number in a new topic that takes its place, with the "
        "order of its keys kept. Without `execute` it only says what that would mean.",
        RepartitionPlan,
        body=RepartitionBody,
        role=Role.ADMIN,
        action="repartitions.start",
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/repartitions/abort",
        "Give a repartition up, while clients have not seen the new partitions: they stay hidden. "
        "Refused without `force` if members of KIP-848 groups would then idle on them.",
        RepartitionRow,
        body=AbortBody,
        role=Role.ADMIN,
        action="repartitions.abort",
        whole=True,
    ),
)
