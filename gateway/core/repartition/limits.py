"""Bounds of a repartition. Units are in the names."""

from __future__ import annotations

# Of a topic afterwards. Each is asked for its log end several times a second while it runs.
TOPIC_PARTITIONS_MAX = 1_024

# Keys of one group that still have records in one old partition, told by their hashes: 256 KiB.
# With more of them all records of the new partitions wait.
REPORTED_KEYS_MAX = 65_536

# Looks at the ends of logs that are remembered until the windows have read so far. With more, every
# other one is forgotten: what waits for it waits a little longer.
LOG_END_LOOKS_MAX = 128

# Clients (address and client id) whose groups are remembered, and groups of one: some 30 MB. A
# client of more groups, or one of more clients, is taken for one whose group is not known.
CLIENTS_MAX = 50_000
CLIENT_GROUPS_MAX = 100
