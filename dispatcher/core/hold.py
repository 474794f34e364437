"""Records that wait for those of another window: of keys that came from there, in a repartition.

A key that moves to a new partition has its earlier records in an old one. They are in another
window, perhaps on another node. So this window is told which keys still have some there, and up to
where its own records are known to come after all of those. A record without a key waits for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Hold:
    """`open_to`: records from this offset on wait. `keys`: hashes (`key_hash32`) of the keys whose
    records wait wherever they are; two keys of one hash wait for each other's records.
    """

    open_to: int
    keys: frozenset[int] = field(default_factory=frozenset)


HELD_WHOLE: Final = Hold(0)


@dataclass(frozen=True, slots=True)
class HoldMoved:
    """An event: another hold than before. None: no record waits for another window any more."""

    hold: Hold | None
    now_ms: int
