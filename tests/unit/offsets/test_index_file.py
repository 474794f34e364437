"""Indexes over a restart: they come back, unless the file cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from keyway.clusters.core.trust import Seals
from offsets.client import Partition, TopicFacts
from offsets.core.index import PartitionIndex
from offsets.core.model import Rows, Stream
from offsets.index_file import IndexFile
from offsets.partitions import Partitions
from tests.rig.offsets_in_memory import MemoryClient

OLD, NEW = Seals(("old",)), Seals(("new", "old"))
PLACE, OTHER = ("orders", 0), ("orders", 1)


def index(end: int = 5, *, life: str = "id") -> PartitionIndex:
    own = Stream("A", "orders", 0, life)
    found = PartitionIndex(own, 0)
    found.extend(Rows(range(end), [1] * end, [own] * end, range(end)), end)
    return found


def ends(path: Path, seals: Seals = OLD) -> dict[Partition, int]:
    """Of the indexes that come back."""
    file = IndexFile(path, seals)
    found = {place: one.end for place, one in file.load([PLACE, OTHER]).items()}
    file.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "offsets-A.sqlite"
    file = IndexFile(path, OLD)
    file.save({PLACE: index(), OTHER: index(7)})
    file.close()
    return path


def test_indexes_come_back(path: Path) -> None:
    assert ends(path) == {PLACE: 5, OTHER: 7}
    assert path.stat().st_mode & 0o077 == 0, "nobody else reads it"
    file = IndexFile(path, OLD)
    file.save({PLACE: index(6), OTHER: None})
    file.close()
    assert ends(path) == {PLACE: 6}


def test_with_other_secrets_the_logs_are_read_again(path: Path) -> None:
    assert ends(path, NEW) == {}
    assert ends(path) == {}, "it was made anew for the other ones"


def test_a_broken_file_is_made_anew(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)
    assert ends(path) == {}
    file = IndexFile(path, OLD)
    file.save({PLACE: index()})
    file.close()
    assert ends(path) == {PLACE: 5}


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ends(tmp_path / "file" / "offsets-A.sqlite") == {}


class Log(MemoryClient):
    """A partition with its start and end."""

    bounds = (0, 9)

    def starts(self, partitions: object, *, partly: bool = False) -> dict[Partition, int]:  # noqa: ARG002
        return {PLACE: self.bounds[0]}

    def ends(self, partitions: object, *, partly: bool = False) -> dict[Partition, int]:  # noqa: ARG002
        return {PLACE: self.bounds[1]}


@pytest.mark.parametrize(
    ("bounds", "topic_id", "begins"),
    [
        ((0, 9), "id", 5),
        ((3, 5), "id", 5),
        ((7, 9), "id", 7),  # retention was faster
        ((2, 4), "id", 2),  # a part of the log is gone
        ((0, 9), "another", 0),  # another topic
        ((0, 9), "", 0),  # nobody can tell
    ],
)
def test_reading_goes_on_where_the_index_ends(
    path: Path, bounds: tuple[int, int], topic_id: str, begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Log("A", now_ms=1)
    monkeypatch.setattr(client, "bounds", bounds)
    partitions = Partitions(client, seals=OLD, file=IndexFile(path, OLD))
    facts: Mapping[str, TopicFacts] = {"orders": TopicFacts(1, create_time=True, topic_id=topic_id)}
    partitions.follow([PLACE], facts)
    found = partitions._followed[PLACE].index
    assert (found.start, found.end, found.own.life) == (bounds[0], begins, topic_id)
    partitions.close()
