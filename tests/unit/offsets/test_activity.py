"""Groups without members: what they commit shows that they are at work."""

from __future__ import annotations

from dataclasses import replace

from offsets.committer import Committer
from offsets.core.entries import Entry
from offsets.core.plan import Committed, Refusal, Row
from tests.rig.offsets_in_memory import MemoryClient
from tests.unit.offsets.test_committer import committer_on, entry

PLACE = ("billing", "topic", 0)
EVERY_MS = 4_000
EMPTY_MS = 30_000


class ByHand:
    """A reader that assigns its partitions by hand, on B and elsewhere."""

    def __init__(self) -> None:
        self.client = MemoryClient("B", now_ms=100_000)
        self.committer: Committer = committer_on(self.client)
        self.committer.options = replace(self.committer.options, empty_ms=EMPTY_MS)
        self.here, self.elsewhere = 10, 40
        self.told = self._entry()

    def _entry(self) -> Entry:
        return entry("billing", self.elsewhere, self.client.now_ms)

    def works_here(self) -> None:
        self.here += 1
        self.client.positions[PLACE] = Committed(self.here, "", self.client.now_ms)

    def works_elsewhere(self) -> None:
        self.elsewhere += 1
        self.told = self._entry()

    def round(self) -> Row:
        (row,) = self.committer.apply([self.told])
        self.client.now_ms += EVERY_MS
        return row

    @property
    def stands(self) -> int:
        return self.client.positions[PLACE].offset

    @property
    def both(self) -> bool:
        return bool(self.committer.state_topic.state.both)


def test_a_group_that_commits_is_not_moved_away_from_its_own_work() -> None:
    """Its commit was replaced by the other cluster's each time, after 30 s of service: a restart
    then passed hundreds of records.
    """
    reader = ByHand()
    for _ in range(12):
        reader.works_here()
        reader.works_elsewhere()
        assert Refusal.RECENTLY_ACTIVE in reader.round().refusals
        assert reader.stands == reader.here
    assert not reader.both
    reader.works_elsewhere()
    for _ in range(EMPTY_MS // EVERY_MS):
        assert reader.round().refusals == (Refusal.RECENTLY_ACTIVE,)
    assert reader.round().refusals == ()
    assert reader.stands == reader.elsewhere, "it has ended here"


def test_a_group_that_goes_on_here_and_elsewhere_is_at_work_on_both() -> None:
    """It is not moved while it is restarted, however long that takes."""
    reader = ByHand()
    for _ in range(20):
        reader.works_here()
        reader.works_elsewhere()
        reader.round()
    assert reader.both
    reader.client.now_ms += 3_600_000
    reader.works_elsewhere()
    assert Refusal.AT_WORK_ON_BOTH in reader.round().refusals
    assert reader.stands == reader.here


def test_a_group_that_moves_there_and_back_is_not_at_work_on_both() -> None:
    reader = ByHand()
    for turn in range(4):
        reader.here = reader.elsewhere = max(reader.here, reader.elsewhere)
        for _ in range(12):
            if turn % 2:
                reader.works_elsewhere()
            else:
                reader.works_here()
            reader.round()
    assert not reader.both
    assert reader.stands == reader.elsewhere
    reader = ByHand()
    reader.works_elsewhere()
    late = reader.told
    for _ in range(30):
        reader.works_here()
        reader.round()
    reader.told = replace(late, offset=late.offset + 5, committed_ms=late.committed_ms + 20_000)
    for _ in range(30):  # its last commits elsewhere arrive late
        reader.works_here()
        reader.round()
    assert not reader.both


def test_commits_that_the_service_makes_are_no_work_of_the_group() -> None:
    reader = ByHand()
    for _ in range(40):
        reader.works_elsewhere()
        assert reader.round().refusals == ()
    assert reader.stands == reader.elsewhere
    assert not reader.both
