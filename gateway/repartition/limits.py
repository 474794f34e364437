"""Bounds of repartitions. Units are in the names."""

from __future__ import annotations

# From one look at the ends of the logs to the next: records of new partitions wait so long, too.
LOOK_MS = 200
# A look reports all keys that wait: it takes a part of the time, however many they are.
LOOK_PAUSE_FACTOR = 5
LOOK_PAUSE_MS_MAX = 2_000  # a step that waits for a transaction takes no time of the node's

# What groups have left is asked for at most so often: of one without windows, it is a question to
# Kafka and to the store.
LEFT_MS = 1_000

# A producer's connection that is to be closed gets so long for its answers.
CLOSE_MS = 5_000

# Redis's clock and this node's go on at one rate, but for this from one turn to the next.
CLOCK_SET_MS = 100

# What is said to Redis and by it.
TABLE_S_MAX = 5.0
LOAD_AGAIN_S = 0.5

# Among several nodes: what others have begun is seen so soon.
FOLLOW_S = 1.0
# Whether a node that has not been heard of for longer serves its producers is not known.
SILENT_MS_MAX = 2_000
# Reports of windows, for other nodes; each look writes them anew.
REPORTS_MS = 600_000

# Each looks at its logs several times a second.
RUNNING_MAX = 8

# To create partitions in Kafka.
CREATE_MS_MAX = 30_000

# For the partitioner that a topic shows: the newest records of so many partitions.
SAMPLED_PARTITIONS_MAX = 32
SAMPLED_OFFSETS = 200

# Where no window reads, one fetch looks for late records so often.
SAMPLE_MS = 1_000

# Before new partitions are shown, groups that rebalance are waited for, so long after the start at
# most: members have max.poll.interval.ms to join again, 5 min by default.
REBALANCING_MS_MAX = 300_000

# To commit offset 0 for many groups takes seconds, and new groups may come all the time.
GROUP_LOOKS_MAX = 5

# Groups that are asked for their positions at a time.
GROUPS_ASKED_AT_ONCE = 16

# For a record of a topic that is gone: from one look to the next.
GONE_LOOK_S = 30.0

# Connections, groups and partitions that a status names one by one.
SHOWN_MAX = 1_000

# A transaction of offsets, for a group that has members.
START_OFFSETS_S_MAX = 20.0

# A plain group that has committed nothing for so long, before the end of a log: the log is looked
# at, whether anything is there that a consumer gets.
STANDING_MS = 2_000

# Where a consumer gets a record, it stays so until retention takes it. A look reads up to 1 MB, and
# groups that nobody runs any more stand in each partition.
RECORD_THERE_MS = 60_000

# A group that has committed nothing in a partition, and whose members fetch at one place of it for
# so long, has begun there: librdkafka commits only where it has consumed. One that works on its
# very first records for longer, and commits them only then, is taken for one that has done them.
UNCOMMITTED_MS = 120_000

# A Fetch that finds nothing because its consumer has to wait is held for as long as it allows, but
# no longer than this; and so long at least.
EMPTY_FETCH_MS_MAX = 1_000
EMPTY_FETCH_MS_MIN = 50

# Of several nodes: that another one has shown a client the new partitions is known within two turns
# of each. And it stays known for so long after the last one that was shown them.
SERVED_TOLD_MS = 5_000
SERVED_MS = 86_400_000

# Nodes tell each other the groups of clients so often.
CLIENTS_TOLD_MS = 5_000

# Behind a restart: by then each member of a plain group has named its group (session.timeout.ms is
# 45 s by default), and who shares its address and client id is not taken for it.
GROUPS_NAMED_MS = 60_000
