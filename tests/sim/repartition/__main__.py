"""More seeds of repartitions on several nodes (a seed that failed is one round):
`python -m tests.sim.repartition --seed n --rounds n`.
"""

from __future__ import annotations

import sys

from tests.chaos.seeds import asked_seeds, played
from tests.sim.repartition.nodes import Nodes


def one(seed: int) -> str:
    world = Nodes(seed)
    world.run()
    return f"{len(world.nodes)} nodes, {world.options.records} records"


if __name__ == "__main__":
    seeds = asked_seeds("python -m tests.sim.repartition", __doc__, 1_000)
    sys.exit(played(seeds, one, lambda _: None))
