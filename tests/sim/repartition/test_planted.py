"""Bugs that are planted in the choice of the moment for the boundaries: the judge sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from gateway.core.repartition.adoption import Adopting, Producing
from gateway.core.repartition.progress import Left, Next, NodeSaid, next_step
from gateway.core.repartition.record import Phase, Repartition
from tests.sim.repartition import nodes
from tests.sim.repartition.parties import Unadopted

SEEDS = range(5_001, 5_101)
Plant = Callable[[pytest.MonkeyPatch], None]


def before_every_node_knows(patch: pytest.MonkeyPatch) -> None:
    def planted(
        record: Repartition,
        live: Collection[str],
        said: Mapping[str, NodeSaid],
        left: Collection[Left],
        now_ms: int,
    ) -> Next:
        if record.phase is Phase.SHOWN:
            said = {name: replace(each, version=record.version) for name, each in said.items()}
        return next_step(record, live, said, left, now_ms)

    patch.setattr(nodes, "next_step", planted)


def adoption_lost(patch: pytest.MonkeyPatch) -> None:
    """Nobody who produced before is waited for."""
    outstanding = Adopting.outstanding

    def planted(self: Adopting, connections: Iterable[Producing]) -> list[int]:
        return outstanding(self, (each for each in connections if each.connection > self.newest))

    patch.setattr(Adopting, "outstanding", planted)


def what_is_on_its_way_lost(patch: pytest.MonkeyPatch) -> None:
    outstanding = Adopting.outstanding

    def planted(self: Adopting, connections: Iterable[Producing]) -> list[int]:
        return outstanding(
            self, (replace(each, oldest_ns=None, whole_ns=0) for each in connections)
        )

    patch.setattr(Adopting, "outstanding", planted)


@pytest.mark.deep
@pytest.mark.parametrize("plant", [before_every_node_knows, adoption_lost, what_is_on_its_way_lost])
def test_boundaries_too_early(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Unadopted):
        _play(SEEDS)


def _play(seeds: range) -> None:
    for seed in seeds:
        nodes.Nodes(seed).run()
