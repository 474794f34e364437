"""Groups that do not permit RENEW (KIP-1222): each error is Kafka's own, as the same requests to
Kafka's own share groups show in the same test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dispatcher.core.model import AckType
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import AckBatch, ShareSession
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce, set_group_config
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
ENABLE = "share.renew.acknowledge.enable"
EARLIEST = {"share.auto.offset.reset": "earliest"}
ACCEPT, RENEW = int(AckType.ACCEPT), int(AckType.RENEW)
NO_RECORDS = dict.fromkeys(("MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs", "BatchSize"), 0)


def fetched(
    member: ShareSession, batches: list[AckBatch], **fields: int
) -> tuple[int, int, str | None]:
    """The answer to a ShareFetch with IsRenewAck: its error, the error of the acknowledgements and
    its text.
    """
    asked: dict[str, Any] = {"IsRenewAck": True, **NO_RECORDS, **fields}
    answer = member.fetch_message(acks={0: batches}, **asked)
    if answer["ErrorCode"] != 0:
        return answer["ErrorCode"], 0, None
    (row,) = answer["Responses"][0]["Partitions"]
    assert not row["AcquiredRecords"]
    return 0, row["AcknowledgeErrorCode"], row["AcknowledgeErrorMessage"]


def told(address: str, group: str, name: str) -> Iterator[object]:
    """Everything one member that holds 0, 1 and 2 is answered, while an admin changes his mind."""
    set_group_config(address, group, {**EARLIEST, ENABLE: "false"})
    with ShareSession(address, group, name, version=2).join() as member:
        held: list[int] = []
        while len(held) < 3:
            held += member.fetch_some().offsets
        yield held

        def acknowledge(*batches: AckBatch) -> int:
            return member.acknowledge({0: list(batches)}, renewing=True)[0]

        yield acknowledge((0, 0, [RENEW]))
        yield acknowledge((0, 2, [RENEW]))
        yield acknowledge((0, 0, [ACCEPT]), (1, 1, [RENEW]))
        yield acknowledge((0, 1, [ACCEPT, RENEW]))
        yield fetched(member, [(0, 2, [RENEW])])
        yield fetched(member, [(0, 0, [ACCEPT]), (1, 2, [RENEW])])
        for field in ("MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs"):
            yield fetched(member, [(0, 2, [RENEW])], **{field: 1})
        yield member.acknowledge({0: [(0, 0, [RENEW])]})
        yield acknowledge((0, 0, [RENEW + 1]))
        yield acknowledge((0, 0, [ACCEPT]))  # none of all that has let it go
        set_group_config(address, group, {ENABLE: "true"})
        wait_until(
            lambda: acknowledge((1, 1, [RENEW])) == 0, what="renewing permitted", deadline_s=20
        )
        yield fetched(member, [(1, 2, [RENEW])])
        yield member.acknowledge({0: [(1, 1, [RENEW])]})
        yield acknowledge((1, 1, [ACCEPT]), (2, 2, [RENEW]))
        yield acknowledge((2, 2, [ACCEPT]))


def test_every_answer_is_kafka_s(
    kafka: KafkaCluster, gateway: GatewayProcess, topic: Topic, fresh_name: Names
) -> None:
    """Direct and through the gateway, word for word; the words of the errors aside."""
    name = topic(partitions=1)
    produce(gateway.bootstrap, name, [(b"a", b"0"), (b"b", b"1"), (b"c", b"2")])
    refused, invalid = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    text = "Renewing acquisition locks is not enabled for the group."
    expected = [
        [0, 1, 2],
        *[refused] * 4,
        *[(0, refused, text)] * 2,
        *[(invalid, 0, None)] * 4,
        {0: invalid},
        invalid,
        0,
        (0, 0, None),
        {0: invalid},
        0,
        0,
    ]
    assert list(told(kafka.bootstrap_servers, fresh_name("direct"), name)) == expected
    assert list(told(gateway.bootstrap, fresh_name("group"), name)) == expected


def refused_to_java(host: ShareHost, address: str, group: str, name: str) -> list[list[object]]:
    """KafkaShareConsumer's words to its application: the first poll, the poll behind the RENEW, and
    the result of the RENEW.
    """
    set_group_config(address, group, {**EARLIEST, ENABLE: "false"})
    member = host.member(address, group, [name], explicit=True)
    held = member.poll_some()
    member.acknowledge("RENEW", held)
    again: list[Delivery] = []

    def answered() -> bool:
        again.extend(member.poll(0.5))
        return bool(member.acked)

    wait_until(answered, what="an answer to the renewal", deadline_s=20)
    return [
        [record.value for record in held],
        [record.value for record in again],
        [acked.error for acked in member.acked],
    ]


def test_what_a_stock_client_makes_of_it(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    java_host: ShareHost,
) -> None:
    name = topic(partitions=1)
    produce(gateway.bootstrap, name, [(b"a", b"0")])
    expected = [[b"0"], [], ["INVALID_RECORD_STATE"]]
    group = fresh_name("direct")
    assert refused_to_java(java_host, kafka.bootstrap_servers, group, name) == expected
    assert refused_to_java(java_host, gateway.bootstrap, fresh_name("group"), name) == expected
