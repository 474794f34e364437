"""Windows that are not up, for the health of the node. Probes and dashboards ask for it every few
seconds, and a node has thousands of windows: those of a group at rest are known from the last time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.windows.window import Window
from gateway.windows.windows import Windows


@dataclass(slots=True)
class WaitingWindows:
    windows: Windows
    _known: dict[str, tuple[int, list[Window]]] = field(default_factory=dict)  # by group

    def all(self) -> list[Window]:
        known: dict[str, tuple[int, list[Window]]] = {}
        found: list[Window] = []
        for group in self.windows.names():
            rest, before = self.windows.rest_of(group), self._known.get(group)
            if before is not None and before[0] == rest:
                waiting = before[1]
            else:
                waiting = [it for it in self.windows.of_group(group) if it.dispatcher is None]
            if rest is not None:
                known[group] = (rest, waiting)
            found += waiting
        self._known = known
        return found
