"""Kafka's dead letter queues: what may be written where, and each letter's bytes and bounds."""

from __future__ import annotations

import pytest

from dispatcher.core.model import Reason
from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.dead_letter_queue import (
    AUTO_CREATE,
    ENABLED,
    PREFIX,
    batches,
    letter,
    queue_of,
    refusal,
)
from gateway.core.wire.records import Record, build, read_records

ORDERS = TopicPartition("orders", bytes(16), 3)
DEFAULTS = {PREFIX: "dlq.", AUTO_CREATE: "false"}
ON, OFF = {ENABLED: "true"}, {ENABLED: "false"}


@pytest.mark.parametrize("name", ["", "  ", None])
def test_no_name_is_no_queue(name: str | None) -> None:
    assert queue_of({} if name is None else {"errors.deadletterqueue.topic.name": name}) is None


@pytest.mark.parametrize(
    ("topic", "of_cluster", "of_topic", "named"),
    [
        ("dlq.a", DEFAULTS, ON, None),
        ("dlq.a", DEFAULTS, OFF, ENABLED),
        ("dlq.a", DEFAULTS, {}, ENABLED),  # of a cluster before 4.4
        ("dlq.a", DEFAULTS, None, AUTO_CREATE),
        ("dlq.a", DEFAULTS | {AUTO_CREATE: "true"}, None, None),
        ("business", DEFAULTS, ON, PREFIX),
        ("business", DEFAULTS | {AUTO_CREATE: "true"}, None, PREFIX),
        ("business", DEFAULTS | {PREFIX: ""}, ON, None),
        ("__state", {PREFIX: ""}, ON, "__"),
    ],
)
def test_what_may_take_letters(
    topic: str,
    of_cluster: dict[str, str],
    of_topic: dict[str, str] | None,
    named: str | None,
) -> None:
    reason = refusal(topic, of_cluster, of_topic)
    assert reason is None if named is None else named in str(reason)


def test_a_letter_has_the_context_and_copies_key_and_value_alone() -> None:
    record = Record(7, 1_000, b"k", None, [("trace", b"1")])
    copied = letter(ORDERS, "g", 7, 2, Reason.LOCK_TIMEOUT, record, 5_000)
    assert (copied.key, copied.value, copied.timestamp) == (b"k", None, 5_000)
    assert copied.headers == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    ]
    bare = letter(ORDERS, "g", 7, 1, Reason.REJECTED, None, 5_000)
    assert (bare.key, bare.value) == (None, None)
    assert bare.headers[-1] == ("__dlq.errors.message", b"Offset rejected by client.")


@pytest.mark.parametrize("bytes_max", [1, 700, 3_000, 1_048_576])
def test_batches_keep_the_bound_and_lose_nothing(bytes_max: int) -> None:
    sizes = [0, 100, 900, 0, 5_000, 1, 1, 2_000]
    sent = [
        letter(ORDERS, "g", at, 1, Reason.REJECTED, Record(at, 0, None, b"v" * size), at)
        for at, size in enumerate(sizes)
    ]
    made = list(batches(sent, bytes_max))
    written = [build(batch, base_offset=0) for batch in made]
    for batch, data in zip(made, written, strict=True):
        assert len(data) <= bytes_max or len(batch) == 1
        assert [record.offset for record in read_records(data)] == list(range(len(batch)))
    told = [(one.value, one.headers) for data in written for one in read_records(data)]
    assert told == [(one.value, one.headers) for one in sent]
    assert not list(batches([], bytes_max))
