"""The records that the rest of a subtree lacks, by what the clusters' logs hold, without Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links import unforwarded
from spark.links.link import Link
from spark.links.unforwarded import Sent, Subtree, Unforwarded, Windows, compare_into
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide

A, B, C = ClusterName("a"), ClusterName("b"), ClusterName("c")
PLACE = ("t", 0)
AT_ONCE = 100
END = 1_000  # of the source's log, and the link's position
DELETED = 10  # records of c's log, of which nothing is known
MS = 5_000  # the timestamp of the source's first record; one follows each millisecond


def config(**messages: object) -> ClustersConfig:
    return ClustersConfig.model_validate(
        {
            "clusters": [{"name": name, "bootstrap_servers": "127.0.0.1:1"} for name in (A, B, C)],
            "tree": {"level": 2, "children": ["a", {"level": 1, "children": ["b", "c"]}]},
            "messages": messages,
        }
    )


@dataclass
class World:
    """`has`: offsets of the source's records in the log of `c`, in its order. `others`: timestamps
    of the records before them, which are not the link's. `foreign`: offsets of the source that the
    link does not copy.
    """

    has: Iterable[int] = ()
    others: tuple[int, ...] = ()
    deleted: bool = False  # the log of c has lost its beginning
    policy: str = "delete"
    source_start: int = 0
    foreign: Iterable[int] = ()
    messages: dict[str, object] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)  # of c's log: how often each record was

    def sent(self, *asked: Any) -> list[Sent]:
        first, last = asked[4]
        offsets = range(max(first, self.source_start), last)
        mine = sorted(set(offsets) - set(self.foreign))
        return [(at, (A, "t", 0, at), MS + at) for at in mine]

    def _log(self) -> list[tuple[int, int]]:
        """Timestamp and the source's offset of each record; -1: of another cluster."""
        return [(ms, -1) for ms in self.others] + [(MS + at, at) for at in self.has]

    def origins(self, *asked: Any) -> tuple[int, set[Any]]:
        since_ms, end = asked[4]
        log = dict(enumerate(self._log(), DELETED if self.deleted else 0))
        first = next((at for at, (ms, _) in log.items() if ms >= since_ms), end)
        self.read += range(first, end)
        return first, {(A, "t", 0, log[at][1]) for at in range(first, end)}

    def end(self) -> int:
        return len(self._log()) + (DELETED if self.deleted else 0)

    def kept_since(self, *_: object) -> int | None:
        log = self._log()
        return log[0][0] if self.deleted and log else None


def lacks(monkeypatch: pytest.MonkeyPatch, world: World) -> Unforwarded | None:
    monkeypatch.setattr(unforwarded, "UNFORWARDED_SCANNED_MAX", AT_ONCE)
    monkeypatch.setattr(unforwarded, "copied_records", world.sent)
    monkeypatch.setattr(unforwarded, "origins_since", world.origins)
    monkeypatch.setattr(unforwarded, "kept_since_ms", world.kept_since)
    settings = config(**world.messages)
    source = SimpleNamespace(
        cluster=settings.cluster(A),
        listed=dict,
        leaderless={},
        log_starts=lambda places: dict.fromkeys(places, world.source_start),
    )
    target = SimpleNamespace(
        cluster=settings.cluster(C),
        configs=lambda names: {name: {"cleanup.policy": world.policy} for name in names},
    )
    subtree = Subtree({C: cast(KafkaSide, target)}, {C: {PLACE: world.end()}})
    windows = Windows()
    compare_into(
        windows,
        Link(Distributor(A, Level(2), (B,), (B, C)), C),
        cast(KafkaSide, source),
        {PLACE: Position(END, "id")},
        subtree,
        settings,
    )
    assert len(world.read) == len(set(world.read)), "each record is read once"
    return windows.found.get(PLACE)


def test_it_goes_back_as_far_as_records_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the newest were compared, and those before them were lost."""
    assert lacks(monkeypatch, World(has=range(420))) == Unforwarded(420, 580)
    assert lacks(monkeypatch, World(has=range(END))) is None
    world = World(has=range(420), foreign=range(500, 750))
    assert lacks(monkeypatch, world) == Unforwarded(420, 330), "over records of others, too"


@pytest.mark.parametrize("others", [(), (MS - 1,)])
def test_it_goes_back_to_the_log_s_start(
    monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...]
) -> None:
    world = World(source_start=130, others=others, deleted=True)
    assert lacks(monkeypatch, world) == Unforwarded(130, 870), "retention does not explain it"


def test_what_the_other_cluster_s_retention_has_deleted_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole partition was copied again."""
    for first in (30, 300, 950):
        assert lacks(monkeypatch, World(has=range(first, END), deleted=True)) is None
        world = World(has=range(first, 990), deleted=True)
        assert lacks(monkeypatch, world) == Unforwarded(990, 10)
    world = World(has=range(950, END))
    assert lacks(monkeypatch, world) == Unforwarded(0, 950), "nothing was deleted"
    world = World(has=[940, *range(960, END)], deleted=True)
    assert lacks(monkeypatch, world) == Unforwarded(941, 19), "between others"
    world = World(others=(MS + 970,), deleted=True)
    assert lacks(monkeypatch, world) == Unforwarded(970, 30), "younger than all it has"


@pytest.mark.parametrize(
    ("messages", "policy"),
    [
        ({"pipeline": "mask.yaml"}, "delete"),
        ({"on_refused": "skip"}, "delete"),
        ({"on_refused": "dead_letter"}, "delete"),
        ({}, "compact,delete"),
    ],
)
def test_records_between_others_that_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, messages: dict[str, object], policy: str
) -> None:
    """A pipeline drops them, the target refuses them, or its topic is compacted."""
    every_tenth = [at for at in range(END) if at % 10 == 5]
    world = World(has=every_tenth, policy=policy, messages=messages)
    assert lacks(monkeypatch, world) == Unforwarded(996, 4), "only those behind the last"
    world = World(has=every_tenth[:42], policy=policy, messages=messages)
    assert lacks(monkeypatch, world) == Unforwarded(416, 584)
    assert lacks(monkeypatch, World(has=every_tenth)) == Unforwarded(0, 900), "a loss elsewhere"
