"""Draining keys (PIP-379): keys that change hands. One member holds a record of the key, another
owns the key since a join or a leave.

These are statistics; no decision depends on them. `WindowState.offer` compares holder and owner
itself. They are kept up to date rather than searched for, because part of them is history. A step
costs nothing more while no key drains, and otherwise what it ends: when a group with much work in
flight grows, thousands of keys drain at a time.
"""

from __future__ import annotations

from typing import Final

from dispatcher.core.records.keys import KeyQueue, MemberQueue
from dispatcher.core.records.span import Span

# Keys that drain; of more no attempts are counted, which is a pass over all of them.
COUNTED_MAX: Final = 100


class Draining:
    def __init__(self, holder: MemberQueue) -> None:
        self.holder = holder
        # How often the owner asked for records while one of the key waited for the holder's.
        self.attempts = 0

    def __repr__(self) -> str:
        return f"<at {self.holder.member_id} attempts={self.attempts}>"


class DrainingKeys:
    def __init__(self) -> None:
        self.by_key: dict[KeyQueue, Draining] = {}
        self.released: list[KeyQueue] = []  # in this step: nothing of them is in flight any more
        self.cleared = 0  # that ended: settled, given back or owned by their holder again

    def look_at(self, queue: KeyQueue) -> None:
        """Called when a key has got an owner or a holder."""
        holder = queue.holder
        if queue in self.by_key:
            self.released.append(queue)
        elif holder is not None and is_draining(queue):
            self.by_key[queue] = Draining(holder.member)
            holder.member.draining += 1

    def end(self) -> None:
        """Called at the end of a step: which of the keys that were released drain no more?"""
        for queue in self.released:
            drain = self.by_key.get(queue)
            if drain is not None and not is_draining(queue):
                del self.by_key[queue]
                drain.holder.draining -= 1
                drain.holder.drained += 1
                self.cleared += 1
        self.released = []

    def asked_by(self, owner: MemberQueue, window: Span) -> None:
        """The owner asks for records, and gets none of these keys."""
        if len(self.by_key) > COUNTED_MAX:
            return
        for queue, drain in self.by_key.items():
            if queue.owner is owner and _waits(queue, window):
                drain.attempts += 1


def is_draining(queue: KeyQueue) -> bool:
    holder = queue.holder
    return queue.in_flight > 0 and holder is not None and holder.member is not queue.owner


def _waits(queue: KeyQueue, window: Span) -> bool:
    """True if a record of the key is not in flight. The records in flight are the first ones, or
    one that was ahead of others before a restart.
    """
    return window.lease_at(queue.head) is None or window.lease_at(queue.tail) is None
