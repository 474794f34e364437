"""Bounds of topics, transactions and batches, each with its reason; the unit is in the name."""

from __future__ import annotations

TRANSACTION_S = 5.0  # the longest that readers of committed records wait for one
TRANSACTION_BYTES_FIRST = 256 * 1024  # before anything is known; 60 s are enough at 5 kB/s
TRANSACTION_BYTES_MAX = 32 * 1024 * 1024  # a task keeps them, should the target refuse a record
GROWTH = 4  # from one transaction to the next; and what makes another query worth its start
BATCH_S_MAX = 30.0  # a task ends then: a link is to stop, tell and change its topics that soon
BATCH_RECORDS_MIN = 100  # for all partitions together
# Of a topic: its rows are one record of the status topic, compressed to 30 bytes each at rest, and
# to 95 with every count. Kafka takes 1 MiB.
PARTITIONS_MAX = 10_000
# Partitions whose last refused record that record has in words, and the length of these: 30 KB.
LEFT_OUT_NAMED_MAX = 100
LEFT_OUT_CHARS_MAX = 300
