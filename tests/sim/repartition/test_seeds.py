"""Keys keep their order while a topic grows, whatever is late, lost or off."""

from __future__ import annotations

import pytest

from tests.sim.repartition.nodes import Nodes
from tests.sim.repartition.world import World

CHUNK = 10
SEEDS, DEEP_SEEDS = range(20), range(20, 100)
OLDER_REQUESTS = 5020  # of a client that connected anew, under way when it was served
NODES_SEEDS = (
    *range(4),
    OLDER_REQUESTS,
    *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 120)),
)
FIRST_ONES = (
    *SEEDS[::CHUNK],
    *(pytest.param(first, marks=pytest.mark.deep) for first in DEEP_SEEDS[::CHUNK]),
)


@pytest.mark.parametrize("first", FIRST_ONES)
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            World(seed).run()
        except AssertionError as failure:
            raise AssertionError(f"SEED={seed}: World({seed}).run()") from failure


@pytest.mark.parametrize("seed", NODES_SEEDS)
def test_seeds_of_nodes(seed: int) -> None:
    """Controllers are killed at each step, producers are late or ask nobody."""
    Nodes(seed).run()
