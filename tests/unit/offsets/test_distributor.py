"""Commits that are a group's own work become entries; those of the committer do not."""

from __future__ import annotations

from clusters.config import OffsetsSection
from clusters.core.internal import OFFSETS_TOPIC
from offsets.board import BoardTopic
from offsets.core.entries import Applied
from offsets.core.plan import Committed
from offsets.distributor import Distributor
from settled.core import metadata as settled_metadata
from tests.rig.offsets_in_memory import FACTS, STREAM, MemoryClient, MemoryPartitions, MemorySource

PLACE = ("billing", "topic", 0)


def told(last: int, settled_ms: int, *, origin: int = 7_000_000) -> str:
    return settled_metadata.encode(6, [(7, last)], origin=origin, settled_ms=settled_ms)


def distributor_on(client: MemoryClient) -> Distributor:
    return Distributor(
        client,
        MemorySource(client),
        MemoryPartitions(client),
        BoardTopic(client),
        OffsetsSection(),
        linked=lambda _: True,
        wanted_topic=lambda _: True,
        now_ms=lambda: client.now_ms,
        facts={"topic": FACTS},
    )


def distributed(distributor: Distributor, text: str, committed_ms: int) -> int:
    """How many entries a commit of the gateway makes; the cursor stays."""
    client = distributor.client
    assert isinstance(client, MemoryClient)
    client.positions[PLACE] = Committed(6, text, committed_ms)
    distributor.poll()
    return distributor.distribute()


def test_work_behind_a_cursor_that_stays_is_news() -> None:
    """The record at the cursor hangs in retries; those behind it are settled here."""
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    distributor.board.write_applied({PLACE: Applied(6, told(9, 1_000), "A", 1_000)})
    assert distributed(distributor, told(9, 1_000), 5_000) == 0, "the committer's own"
    again = told(9, 1_000, origin=8_000_000)
    assert distributed(distributor, again, 6_000) == 0, "the gateway took it over"
    assert distributed(distributor, told(40, 8_000), 9_000) == 1
    entry = distributor.board.state.entries[PLACE, "B"]
    assert entry.progress is not None
    assert (entry.committed_ms, entry.progress.settled) == (8_000, {STREAM: [(7, 40)]})


def test_a_plain_commit_at_the_applied_offset_is_no_news() -> None:
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    distributor.board.write_applied({PLACE: Applied(6, "streams", "A", 1_000)})
    assert distributed(distributor, "another word", 5_000) == 0


def test_a_group_that_reads_the_board_makes_no_entry() -> None:
    """Each entry would move its position, for another entry."""
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    client = distributor.client
    assert isinstance(client, MemoryClient)
    client.positions["reader", OFFSETS_TOPIC, 0] = Committed(6, "", 5_000)
    client.positions["reader", "topic", 0] = Committed(6, "", 5_000)
    distributor.poll()
    assert distributor.distribute() == 1
    assert list(distributor.board.state.entries) == [(("reader", "topic", 0), "B")]
