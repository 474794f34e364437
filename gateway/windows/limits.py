"""Bounds of the windows of a node: ticks, retries, idle times. Units are in the names."""

from __future__ import annotations

# Windows in memory. One takes some 20 KiB, and more while it has records. Somebody who fetches from
# one more is answered REPLICA_NOT_AVAILABLE, which clients try again.
WINDOWS_MAX = 50_000
CONNECTION_WINDOWS_MAX = 15_000  # asked for by one connection: the partitions of a share session
WINDOWS_TOLD_MS = 10_000  # between two lines of the log about windows that are too many
LOADED_AT_ONCE = 16  # windows; half of the connections to the store
LOAD_SLOW_S = 1.0  # a load that takes longer waits for somebody who is away

GROUPS_NAMED = 10  # with a trouble, or a warning, in /health; the others are counted
TOPIC_IDS_REMEMBERED = 10_000  # as text: 200 bytes each

TICKED_AT_ONCE = 500  # windows between two looks at other work: one or two milliseconds
OFFSETS_PER_TICK = 32  # unsettled ones of a window that count as one more window ticked
TOPIC_UNUSED_MS = 60_000  # a topic without use for this long, twice at most, leaves the view
STORE_RETRY_MS = 100  # before a failed write is tried again: a Redis starts in about 50 ms
LOG_STARTS_MS = 60_000  # between two looks at where logs begin; brokers delete every 5 minutes
LOG_STARTS_AT_ONCE = 500  # windows, and partitions of one request: decoded in some ms
LOG_STARTS_S_MAX = 5.0  # a broker that hangs does not keep the others' from being looked at
WINDOWS_READ_AT_ONCE = 100  # by a scrape, before other work goes on: a millisecond or two
ASKED_AT_REST = 16  # windows in which nothing happens that ask the store with each commit
LOADED_GATHERED_MS = 50  # windows that were loaded within this time make one commit of their group
CAPTURED_AT_ONCE = 16  # windows whose state is taken for a commit before other work: 3 to 13 ms
LONG_RANGES = 16  # settled ranges of a commit; a longer one is encoded in a turn of its own
COMMIT_WAIT_S_MAX = 2.0  # a window that the store has does not wait longer for Kafka's commit
WINDOW_IDLE_MS_MAX = 60_000  # without members and with everything committed, a window leaves memory

# Members and unsettled offsets of windows that hear of a change before other work goes on: 5 to 10
# ms. One window is told whole.
MEMBER_CHANGES_AT_ONCE = 16_384
MISSING_TOPIC_MS = 2_000  # between questions for a topic that members subscribe to and is not there

# From a local Redis that rests to the limit of a call (dispatcher/store/redis.py).
ROUND_TRIP_BOUNDS_MS = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
# Offsets that a window settles before the reader hears of it, unless none is left behind them: some
# of the records of one batch.
FORGET_OFFSETS = 128

# Offsets behind the front whose records aside the reader keeps, the default span: members that are
# slower than others ask for them soon, and a fetch of a few would read whole batches again.
KEPT_ASIDE_OFFSETS = 16_384
