"""Keys keep their order while a topic grows, whatever is late, lost or off."""

from __future__ import annotations

import pytest

from tests.sim.repartition.world import World

CHUNK = 10
SEEDS = range(100)


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            World(seed).run()
        except AssertionError as failure:
            raise AssertionError(f"SEED={seed}: World({seed}).run()") from failure
