"""How far clients have come in what they know of the routing content.

A connection reflects the generation of the Metadata that it was last served. A node's adoption is
the lowest of its connections, the cluster's the lowest of the live nodes. Without a connection that
has asked for Metadata nothing is adopted yet: nobody has said that he knows.
"""

from __future__ import annotations

from collections.abc import Mapping

Generation = int


class Adoption:
    """Which generation each connection of one node has adopted."""

    def __init__(self) -> None:
        self._served: dict[int, Generation] = {}  # by connection

    def served(self, connection: int, generation: Generation) -> None:
        """The connection was sent Metadata that reflects `generation`. An answer that was delayed
        takes nothing back.
        """
        self._served[connection] = max(generation, self._served.get(connection, 0))

    def closed(self, connection: int) -> None:
        self._served.pop(connection, None)

    def lowest(self) -> Generation | None:
        """None: not adopted yet."""
        return min(self._served.values(), default=None)


def of_cluster(nodes: Mapping[str, Generation | None]) -> Generation | None:
    """The generation that all clients have adopted. `nodes`: what each live node says. A dead node
    has no client left, so it is not among them. None: not adopted yet.
    """
    said = list(nodes.values())
    known = [generation for generation in said if generation is not None]
    return min(known) if known and len(known) == len(said) else None
