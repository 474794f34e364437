"""Deliveries that were written to the store, perhaps, and never sent to a client.

If the store applied a write and its answer was lost, the rebuilt window has leases of records that
no client has. Without this their keys would wait until the locks run out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dispatcher.core.model import Delivered, NotSent, Step


@dataclass(slots=True)
class UnconfirmedDeliveries:
    _deliveries: list[Delivered] = field(default_factory=list)

    def note(self, steps: Iterable[Step]) -> None:
        """The steps of a write that may or may not have been applied; their effects were not
        performed.
        """
        for step in steps:
            found = [it for it in step.effects if isinstance(it, Delivered) and it.offsets]
            self._deliveries += found

    def taken_back(self, now_ms: int) -> list[NotSent]:
        """The events that tell a rebuilt window. They change nothing if the write was not applied:
        then the session does not hold those records.
        """
        deliveries, self._deliveries = self._deliveries, []
        return [NotSent(it.member_id, it.session_id, it.offsets, now_ms) for it in deliveries]
