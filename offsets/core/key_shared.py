"""The commit metadata of a Key-Shared group: the records behind its position that are settled."""

from __future__ import annotations

from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.core.entries import Entry
from offsets.core.limits import METADATA_CHARS_MAX
from offsets.core.model import Range
from offsets.core.translate import Located


def encoded(entry: Entry, offset: int, ranges: list[Range], origin: int) -> str:
    return settled_metadata.encode(
        offset,
        ranges,
        origin=origin,
        settled_ms=entry.committed_ms,
        chars_max=METADATA_CHARS_MAX,
    )


def records_told(entry: Entry, located: Located | None) -> int:
    """How many settled records fit the metadata of a Key-Shared group."""
    if not entry.key_shared or located is None:
        return 0
    text = encoded(entry, located.offset, [span for span, _ in located.settled], origin=1)
    kept = settled_metadata.decode(located.offset, text) or []
    return sum(
        records
        for (low, high), records in located.settled
        if any(first <= low and high <= last for first, last in kept)
    )
