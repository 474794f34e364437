"""The copy headers of whole batches are those of copies.py, for every kind of record."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow
import pytest

from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode, judge
from keyway.clusters.core.limits import COPY_HEADERS_MAX
from keyway.clusters.core.seals import checksum
from keyway.clusters.core.tree import ClusterName, Distributor, Flags, Level
from keyway.clusters.core.trust import CHECKSUM, Seals
from spark.links.sealing import Named, Sealing

SCHEMA = pyarrow.schema(  # as Spark makes it of its Kafka source
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        (
            "headers",
            pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])),
        ),
    ]
)
TOPIC_ID = "q7GdPzq4RbC5nTZ0m9Zx-_"
# By name: no secret, one, and the change from an older one or from none at all.
SEALS = {
    "none": CHECKSUM,
    "one": Seals(("a secret",)),
    "rotation": Seals(("a secret", "an older secret of more than 64 bytes: " + "x" * 64)),
    "first": Seals(("a secret",), checksums=True),
}
LEVEL_2 = Distributor(
    ClusterName("here"), Level(2), (ClusterName("there.1"),), (ClusterName("there.1"),)
)
TARGET_TOPIC = "orders"

Headers = list[tuple[str, bytes | None]]


def record(draw: random.Random, offset: int, seals: Seals) -> tuple[Stood, Headers]:
    """A record with headers of every kind: true, inherited, forged, malformed, foreign."""
    fields = (None, b"", b"k", bytes(range(256)), draw.randbytes(draw.randrange(100)))
    stood = Stood(
        TARGET_TOPIC,
        draw.choice((0, 1, -1, 1_700_000_000_000 + offset, 2**41)),
        draw.choice(fields),
        draw.choice(fields),
    )
    flags = Flags(draw.choice((0, 1, 2, 4, 0x8000_0000, 0xFFFF_FFFC)))
    topic_id = draw.choice(("", TOPIC_ID))
    cluster = ClusterName(draw.choice(("far-1", "far-1", "far-1", "there.1", "thereX1")))
    copy = Copy(flags, Origin(cluster, "orders", 3, 4711, topic_id))
    good = encode(copy, stood, seals=seals)
    inherited = encode(copy, Stood("input", 5, b"x", b"y"), seals=seals)
    oldest = Seals(seals.secrets[-1:])
    candidates: Headers = [
        (COPY_HEADER, good),
        (COPY_HEADER, inherited),
        (COPY_HEADER, encode(copy, stood, seals=oldest)),
        (COPY_HEADER, encode(copy, stood)),
        *((COPY_HEADER, version_1(copy, stood, secret)) for secret in ("", *seals.secrets)),
        (COPY_HEADER, good.replace(b"2-", b"3-", 1)),
        (COPY_HEADER, good.replace(b"2-", b"1-", 1)),
        (COPY_HEADER, good + b"\n"),
        (COPY_HEADER, b"\xff\xfe\x00"),
        (COPY_HEADER, b"x" * 500),
        (COPY_HEADER, None),
        ("Keyway-Copy", good),
        ("other", None),
        ("other", b"\x00\xff"),
    ]
    headers: Headers = draw.choices(candidates, k=draw.randrange(5))
    if draw.random() < 0.02:
        headers = [*[(COPY_HEADER, b"bad")] * COPY_HEADERS_MAX, (COPY_HEADER, good)]
    return stood, headers


def version_1(copy: Copy, stood: Stood, secret: str) -> bytes:
    """As it was written before: without a topic id, the secret in the checksum."""
    claimed = f"{copy.flags:08x}-{copy.origin}"
    return f"1-{claimed[:8]}-{checksum(claimed, stood, secret):016x}-{copy.origin}".encode()


def batch_of(records: list[tuple[Stood, Headers]]) -> pyarrow.RecordBatch:
    rows = [
        {
            "topic": "acme-orders",
            "partition": 3,
            "offset": offset,
            "timestamp": stood.timestamp_ms * 1_000,
            "key": stood.key,
            "value": stood.value,
            "headers": [{"key": name, "value": value} for name, value in headers] or None,
        }
        for offset, (stood, headers) in enumerate(records)
    ]
    return pyarrow.RecordBatch.from_pylist(rows, schema=SCHEMA)


def sealing(seals: Seals) -> Sealing:
    # librdkafka writes ids in another alphabet than Kafka's tools.
    names = {"acme-orders": Named(TARGET_TOPIC, TOPIC_ID.replace("-", "+").replace("_", "/"))}
    return Sealing(names, seals, LEVEL_2)


def rows_of(found: Sealing, *batches: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in found.sealed(batches) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", SEALS)
def test_batches_are_judged_and_sealed_as_records_are(name: str) -> None:
    seals = SEALS[name]
    draw = random.Random(7)
    records = [record(draw, offset, seals) for offset in range(500)]
    whole = batch_of(records)
    # A slice begins in the middle of Arrow's buffers; one record has none but its own headers.
    parts = [whole.slice(0, 7), whole.slice(7, 1), whole.slice(8)]
    found = rows_of(sealing(seals), *parts)
    believed = copied = went_back = 0
    for row, (offset, (stood, headers)) in zip(found, enumerate(records), strict=True):
        verdict = judge(headers, stood, seals=seals)
        believed += verdict.copy is not None
        assert row["doubts"] == len(verdict.doubts), (stood, headers)
        copy = verdict.copy or Copy(
            Flags(0), Origin(ClusterName("here"), TARGET_TOPIC, 3, offset, TOPIC_ID)
        )
        flags = LEVEL_2.flags_of_copy(copy.flags)
        if flags is None or LEVEL_2.would_go_back(copy.origin.cluster):
            went_back += flags is not None
            assert row["copy"] is None
            continue
        copied += 1
        written = Stood(TARGET_TOPIC, max(stood.timestamp_ms, 1), stood.key, stood.value)
        assert row["copy"] == encode(Copy(flags, copy.origin), written, seals=seals)
        assert (row["timestamp_ms"], row["key"], row["value"]) == written[1:]
        others = [(name, value) for name, value in headers if name != COPY_HEADER]
        assert list(zip(row["header_names"], row["header_values"], strict=True)) == others
    assert 60 < believed < 400
    assert 200 < copied < 480
    assert went_back


def test_fresh_records_without_headers() -> None:
    stood = Stood(TARGET_TOPIC, 5, None, b"v")
    (row,) = rows_of(sealing(CHECKSUM), batch_of([(stood, [])]), batch_of([]))
    copy = Copy(Flags(2), Origin(ClusterName("here"), TARGET_TOPIC, 3, 0, TOPIC_ID))
    assert row["copy"] == encode(copy, stood)
    assert (row["header_names"], row["header_values"], row["doubts"]) == ([], [], 0)


def test_the_origin_is_the_topic_before_a_pipeline_routed_the_record() -> None:
    """Two topics that are routed into one would else have the same origins."""

    def routed(batches: Any) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index("logical_topic")
            names = pyarrow.array(["all-orders", None])
            yield batch.set_column(at, "logical_topic", names)

    stood = Stood(TARGET_TOPIC, 1, b"k", b"v")
    piped = replace(sealing(CHECKSUM), steps=routed)
    row, filtered_out = rows_of(piped, batch_of([(stood, []), (stood, [])]))
    copy = Copy(Flags(2), Origin(ClusterName("here"), TARGET_TOPIC, 3, 0, TOPIC_ID))
    assert row["copy"] == encode(copy, Stood("all-orders", 1, b"k", b"v"))
    assert filtered_out["copy"] is None


def test_a_secret_reaches_a_task_and_no_text() -> None:
    """Spark's plans, web pages and event logs have texts of what they run."""
    found = sealing(SEALS["one"])
    assert pickle.loads(pickle.dumps(found)) == found
    assert "a secret" not in f"{found!r} {found.sealed!r}"
