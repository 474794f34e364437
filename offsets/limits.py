"""Limits of the shells of offsets, each with its reason."""

from __future__ import annotations

from typing import Final

# Rows of a partition's end that stay in memory: most groups are near it, and 32 bytes a row are
# 640 KiB. A position further back is read again from Kafka. Of all partitions together they are 4
# million (128 MiB), as long as each keeps some.
RECENT_ROWS_MAX: Final = 20_000
RECENT_ROWS: Final = 4_000_000
RECENT_ROWS_MIN: Final = 200

# How long one round reads before commits are looked at again.
READ_S_MAX: Final = 1.0

# A fetch names all partitions that are followed, as librdkafka has no fetch sessions: of 10,000 it
# costs 10 ms and more here and at the broker. So it waits for records this long, or for so many.
FETCH_WAIT_MS_MAX: Final = 500
FETCH_BYTES_MIN: Final = 64 * 1024

# One read of a range of a partition again: the span of a Key-Shared window at 1 MiB a record would
# be 16 GiB, so a read is given up after this long rather than by bytes.
REREAD_S_MAX: Final = 30.0

# A partition of which that failed rests for twice as long as it took, and at least for so long.
REREAD_REST: Final = 2.0
REREAD_REST_S_MIN: Final = 10.0

# Translated names of topics, and of groups: each is asked for many times a round.
NAMES_KEPT: Final = 50_000

# An index that changed is in its file after so long: after a crash so much of a log is read again.
# So many are written in a round, at most.
SAVED_S: Final = 60.0
SAVED_AT_ONCE: Final = 1_000

# Places that one round looks at: all at once would take seconds, in which no commit is read.
PLACES_AT_ONCE: Final = 1_000

# Partitions whose topics and logs are looked at in one `refresh_ms`: 10,000 would take more than a
# second of CPU. Those with something to commit or to distribute are looked at in any case.
LOOKED_AT_ONCE: Final = 1_000

# Partitions that one service follows. Their indexes are some 180 KiB each at most.
PARTITIONS_MAX: Final = 10_000

# At a start, commits are waited for so long before the partitions without a leader are left out:
# one that fails over has a new leader within seconds. They are looked at again as often.
LEADERS_WAITED_S: Final = 10.0

# A group that has members here for so long and commits progress elsewhere works on both clusters: a
# member that ends elsewhere makes its last commit sooner, and clocks differ by less.
AT_WORK_ON_BOTH_MS: Final = 30_000

# The status of a cluster's links, a row for each topic; what takes longer is read at the next look.
STATUS_READ_S_MAX: Final = 2.0

# Topics that one report of a switch names, with 250 bytes each. Where more have stopped, the switch
# stays unfinished for all topics.
STOPPED_TOLD_MAX: Final = 1_000

# What is told of a deleted commit stays so long: no cluster that comes back after an outage takes
# the commit for one that still stands. Then tombstones take it from the topic.
DELETED_KEPT_MS: Final = 7 * 24 * 3_600 * 1_000

# A commit that stands is made again after so long, far below offsets.retention.minutes (a week by
# default), and so many in one round: after an hour all of a start would be due at once.
COMMITTED_AGAIN_MS: Final = 3_600 * 1_000
COMMITTED_AGAIN_AT_ONCE: Final = 50

# A forwarder looks so often whether its targets still have the topics that it has written to.
TARGETS_LOOKED_S: Final = 10.0

# From one sign of life of a service to the next, and how old the last one may be: a round may read
# a range of a partition again, and move a thousand commits.
BEAT_S: Final = 10.0
SILENT_MS: Final = 120_000

# A service that was killed gives way to another process of its cluster after so long. The broker
# that keeps the lease may die: Kafka takes 9 s to notice, and the next one reads its part of
# `__consumer_offsets` first. A service that lost its lease for that would read everything anew.
# A process that stands by looks so often who works.
LEASE_SESSION_MS: Final = 30_000
STANDBY_LOOKS_EVERY_S: Final = 10.0

# Rows of commits shown in one log line.
LOGGED_PLACES_MAX: Final = 5
