"""Limits of one window that no policy sets, each with its reason.

Those that a policy sets stand together in `model.Policy`: offsets of the span (16,384), records of
the window (off; Danube has 10,000), records of a member (1,000), of a key (1), deliveries (5).
"""

from __future__ import annotations

from typing import Final

# Offsets a fresh window's rings hold; they double up to the span. An idle partition stays under 4
# KiB.
RING_OFFSETS_MIN: Final = 64

# Clean bytes between two dirty ones of the settled bitmap that are written again rather than made a
# second change: a change costs some 60 bytes on the way to the store.
BITMAP_GAP_BYTES_MAX: Final = 32

# Offsets per chunk of the stored bitmap (8 KiB); a BitsSet never crosses from one chunk to the
# next.
CHUNK_OFFSETS: Final = 65_536

# Offsets of one stretch of records aside: 64 bytes of bits, in memory some 150, in the store 100.
STRETCH_OFFSETS: Final = 512

# Stretches with records aside: 20 MB of a window if each record has a stretch of its own. The
# offsets of the backlogs, `held_max` of the policy, take 8 bytes each.
STRETCHES_MAX: Final = 131_072

# Records that a window from a commit may have aside at once. A commit that says more is of a window
# with wider gaps: it is read in order, from the cursor.
ASIDE_RESTORED_MAX: Final = 1_048_576

# Records aside that a commit tells of one by one: far more than its metadata holds.
COMMITTED_RANGES_MAX: Final = 16_384
ALL_RANGES: Final = 1 << 62

# Offsets aside that are next to each other are read again in one read after a restart, if no more
# than this lies between them: reading an offset costs a thousandth of a round trip.
REREAD_GAP_OFFSETS: Final = 1_000

# Keys without unsettled records that are kept, for the next record of theirs to find its owner
# known: hashing and ring search cost more than all else in reading. Some 2 MiB per busy window;
# the tick drops those of an idle window.
IDLE_KEYS_MAX: Final = 8_192

# Read again once this share of the span is free (or as soon as some member has nothing to do): a
# fetch for every single offset that the cursor gains would cost more than it brings.
READ_ROOM_DIVISOR: Final = 8

# Leader epochs of which a window knows where they began: a log that loses its tail leaves one or
# two of the latest. Each is two words more in every write.
EPOCHS_MAX: Final = 8

# Doublings of the back-off that are computed; the cap of the policy ends it long before.
BACKOFF_DOUBLINGS_MAX: Final = 40

# Bytes of a glob times bytes of a key that are matched by trying: some 0.5 us. Below that,
# trying is three times as fast as searching; above it, the key is searched.
GLOB_STEPS_MAX: Final = 256

# Of a key, behind the part before a glob's first star: what stands between two stars is looked for
# there. Members choose the globs, and whoever writes the topic the keys: keys may have 1 MB.
KEY_SEARCHED_BYTES_MAX: Final = 256

# Of a key that is kept whole; a longer one is kept as one byte more (routing/kept_keys.py). What a
# window keeps is counted in keys: 16,384 of 1 MB in a span, and IDLE_KEYS_MAX, took all memory.
KEY_BYTES_MAX: Final = 837

# Ranges of records sent beyond the last sent position that an operator is shown.
SENT_RANGES_MAX: Final = 16_384

# Draining keys that an operator is shown one by one; all are counted. The rest is more of the same.
DRAINING_SHOWN_MAX: Final = 100
# Parked records in a window's figures; of all of them there are lists. A policy can park a million.
PARKED_SHOWN_MAX: Final = 1_000

# The pause before a window that broke, or could not be loaded, is loaded again: doubles from the
# first, which a Redis that restarts needs, to the second, while the store or upstream is away.
RELOAD_MS_MIN: Final = 100
RELOAD_MS_MAX: Final = 5_000
