"""Keys whose records wait for another window (hold.py)."""

from __future__ import annotations

from dispatcher.core.hold import Hold
from dispatcher.core.records.keys import KeyQueue
from dispatcher.core.routing.hashes import key_hash32


def waits(hold: Hold, queue: KeyQueue) -> bool:
    """Whether the first record of the key does, and so all of them."""
    if queue.key is None:
        return False
    return queue.head >= hold.open_to or int(key_hash32(queue.key)) in hold.keys
