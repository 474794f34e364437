"""Bounds of reading from upstream and of writing dead letters. Units are in the names."""

from __future__ import annotations

# Decompressed batches of the whole gateway: 4 partitions of 16,384 offsets of 1 KiB are two thirds
# of it. With 64 full windows (105 MiB) and a node that does nothing (66 MiB) it stays below 300
# MiB.
CACHE_BYTES_MAX = 96 * 1024 * 1024

# A broker answers the requests of a connection one after the other, so each outstanding Fetch has
# a connection: one for partitions where nothing happens, one for all that are busy, the rest for
# those that come while that one is out.
FETCH_LANES = 4

# Steps of a scan in one turn of the event loop: as long as LONG_STEP_RECORDS take.
SCAN_TURN_S_MAX = 0.002

# Answers about quiet partitions that are looked at in one turn of the event loop.
TURN_ANSWERS = 500

# A topic that stays unknown this long was deleted; a new one takes Kafka well under a second to
# show everywhere.
UNKNOWN_TOPIC_MS = 5_000

# A leader that does not know the epoch of records that were read was cut off, or has just been
# elected. One that lacks it for longer has lost them.
LEADER_LAGS_MS_MAX = 30_000

DEAD_LETTER_WRITE_MS_MAX = 15_000  # then the window keeps the key and tries again with back-off

# Read, sent and awaited together, of one partition: so many, or fewer if they are large; one is
# written however large it is. Each is held three times: as read, taken apart, and by the producer.
DEAD_LETTERS_AT_ONCE = 500
DEAD_LETTER_PART_BYTES_MAX = 8 * 1024 * 1024
DEAD_LETTER_PARTS_MAX = 4  # at once, of all partitions; the others wait
DEAD_LETTER_BYTES_MAX = 100 * 1024 * 1024  # the broker decides about the size, not we
QUEUE_ANSWER_MS_MAX = 20_000  # to a write: the broker gives up before, and says so
# A failure of dead letters is told in /health for so long: they are tried again after a minute or
# less (backoff_max_ms of the group), and who waits longer is told with the next failure.
LETTERS_TOLD_MS = 180_000
LETTERS_NAMED = 10  # groups in /health; the others are counted
FAILED_GROUPS_MAX = 1_000  # whose last failure is kept
PRODUCER_START_S_MAX = 30.0  # a broker that does not answer takes 15 s of it
PRODUCER_STOP_S_MAX = 5.0  # half of STOP_S_MAX: the commit comes before it
PRODUCER_GIVE_UP_S_MAX = 1.0  # until its tasks have ended, and then its connections

# Of one look for the first record behind a position. An aborted transaction may be longer: the
# next look goes on behind it.
BATCHES_LOOKED_AT = 8

# Shown of one record to operators: about a screen. Tracing adds two or three headers of some 50
# bytes, a dead letter has eight.
HEADERS_SHOWN = 20
HEADER_BYTES_SHOWN = 256  # of each name, and of each value

# Topics of which the log was told that they cannot be read, and not that they can be again.
STOPPED_TOPICS_MAX = 1_000
