"""Limits of the pure part of offsets, each with its reason."""

from __future__ import annotations

from typing import Final

# Records that one segment of an index sums up. To find one record a segment is read again: 1,000
# records are one fetch.
SEGMENT_RECORDS: Final = 1_000

# Segments of one partition. Above it two neighbours become one and segments are twice as long from
# then on: 56 bytes a segment and 32 for each stream are 180 KiB a partition with 4 streams, however
# long its log is. A log of 100 million records has segments of 131,072.
SEGMENTS_MAX: Final = 1_024

# Segments that are read again only to count repeats exactly; those beyond are counted as if all
# their records came again, so that the count stays an upper bound.
COUNTED_READS_MAX: Final = 16

# Offsets behind a Key-Shared cursor that are looked at: the default span of its window, and a
# bitmap of so many fits commit metadata.
SETTLED_SPAN_OFFSETS: Final = 16_384

# Ranges of settled records in one entry: their JSON stays below half of Kafka's default
# max.message.bytes. Those beyond are left out, so their records come again.
SETTLED_RANGES_MAX: Final = 32_768

# The characters of commit metadata that Kafka takes with its default offset.metadata.max.bytes of
# 4,096 (it refuses 4,096 themselves).
METADATA_CHARS_MAX: Final = 4_095
