"""What a broken window may have handed out without anybody hearing of it.

If the store applied a write and its answer was lost, the rebuilt window has leases of records that
no client was sent: their keys would wait until the locks run out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dispatcher.core.model import Delivered, NotSent, Step


@dataclass(slots=True)
class Unsent:
    _deliveries: list[Delivered] = field(default_factory=list)

    def note(self, steps: Iterable[Step]) -> None:
        """Steps of a write whose fate nobody knows; their effects were not performed."""
        for step in steps:
            found = [it for it in step.effects if isinstance(it, Delivered) and it.offsets]
            self._deliveries += found

    def taken_back(self, now_ms: int) -> list[NotSent]:
        """What a rebuilt window is to be told. Harmless where the write was not applied: the
        session does not hold those records then.
        """
        deliveries, self._deliveries = self._deliveries, []
        return [NotSent(it.member_id, it.session_id, it.offsets, now_ms) for it in deliveries]
