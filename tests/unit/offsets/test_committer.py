"""A commit that fails is made later: it does not count as made because it was written down."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from offsets.board import BoardTopic
from offsets.client import Refused
from offsets.committer import Committer, Options
from offsets.core.entries import Entry
from offsets.core.model import Progress
from offsets.core.plan import Committed, Mode, Refusal
from offsets.errors import ClusterAway
from settled.core import metadata as settled_metadata
from tests.rig.offsets_in_memory import (
    FACTS,
    RECORDS,
    STREAM,
    MemoryClient,
    MemoryPartitions,
    MemorySource,
)

AWAY = ClusterAway("B: commit: no answer")
FAILED = Refused(Refusal.KAFKA_ERROR, "UNKNOWN_SERVER_ERROR")
GROUPS = ("billing", "shipping")


def committer_on(
    client: MemoryClient, *, mode: Mode = Mode.EXACT, read: int = RECORDS
) -> Committer:
    return Committer(
        client,
        MemoryPartitions(client, read=read),
        BoardTopic(client),
        Options(mode),
        now_ms=lambda: client.now_ms,
        source=MemorySource(client),
        facts={"topic": FACTS},
    )


def entry(group: str, offset: int, committed_ms: int, *, settled: int = 0) -> Entry:
    """`settled`: how many records behind the cursor's are, of a Key-Shared group."""
    ranges = {STREAM: [(offset + 1, offset + settled)]} if settled else {}
    return Entry(
        group,
        "topic",
        0,
        "A",
        committed_ms,
        offset=offset,
        partitions=1,
        exact=True,
        progress=Progress({STREAM: offset}, {STREAM: offset}, ranges),
        key_shared=bool(settled),
    )


def try_once(committer: Committer, entries: list[Entry]) -> None:
    with suppress(ClusterAway):
        committer.apply(entries)


def positions(client: MemoryClient) -> list[int]:
    return [client.positions[group, "topic", 0].offset for group in GROUPS]


@pytest.mark.parametrize("failure", [AWAY, FAILED], ids=["away", "refused"])
def test_a_commit_that_failed_once_is_made_later(failure: ClusterAway | Refused) -> None:
    """And those of the groups behind it. The entries are no later than the commits made here."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    committer.apply([entry(group, 6, 1_000) for group in GROUPS])
    assert positions(client) == [6, 6]
    client.now_ms, client.fail = 9_000, failure
    later = [entry(group, 12, 4_000) for group in GROUPS]
    try_once(committer, later)
    assert positions(client)[0] == 6
    assert [it.refusals for it in committer.apply(later)] == [(), ()]
    assert positions(client) == [12, 12]


def test_the_settled_records_of_a_commit_that_failed_are_committed_later() -> None:
    """The cursor stays."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    committer.apply([entry("billing", 6, 1_000, settled=2)])
    client.now_ms, client.fail = 9_000, AWAY
    later = entry("billing", 6, 4_000, settled=20)
    try_once(committer, [later])
    (row,) = committer.apply([later])
    assert row.refusals == ()
    there = client.positions["billing", "topic", 0]
    assert settled_metadata.decode(there.offset, there.metadata) == [(7, 26)]


def test_a_reset_to_where_the_group_was_before_is_the_operators() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    for at, ms in ((6, 1_000), (12, 4_000)):
        committer.apply([entry("billing", at, ms)])
    client.positions["billing", "topic", 0] = Committed(6, "", 10_000)
    (row,) = committer.apply([entry("billing", 12, 4_000)])
    assert row.refusals == (Refusal.OVERTAKEN,)


def test_by_timestamp_no_record_is_passed_that_came_while_kafka_was_asked() -> None:
    """The log ends at 100 now; the search for the timestamp found nothing in the records before."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client, mode=Mode.TIMESTAMP, read=40)
    late = replace(entry("billing", 7, 1_000), timestamp_ms=1_000, progress=None, exact=False)
    (row,) = committer.apply([late])
    assert (row.new, row.refusals) == (40, ())


def test_by_timestamp_a_partition_that_is_not_read_yet_waits() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client, mode=Mode.TIMESTAMP)
    committer.partitions.leave([("topic", 0)])
    late = replace(entry("billing", 7, 1_000), timestamp_ms=1_000)
    (row,) = committer.apply([late])
    assert (row.new, row.refusals) == (None, (Refusal.NOT_INDEXED,))
    assert client.positions == {}
