"""Bounds of operators' requests. Units are in the names."""

from __future__ import annotations

LAG_MS = 10_000  # between two looks at where logs end; Prometheus asks every 15 s or more rarely
LAG_WATCHED_MS = 3_000  # the same while a dashboard is open
LAG_PAUSE_FACTOR = 20  # times the look itself: the pause behind it, up to LAG_MS
LAG_TOLD_MS = 120_000  # figures that are older are told to be: a look at all may take long
LAG_STORED_MS = 60_000  # between two questions to the store for windows that are not in memory
LAGS_AT_ONCE = 200  # partitions summed up before other work goes on: a few ms at most
PORTION_PAUSE_FACTOR = 3  # times a portion of a look at all groups: then the next one begins
PORTION_PAUSE_S_MIN = 0.001  # uvloop's timers count milliseconds: a shorter one is none
PORTION_PAUSE_S_MAX = 0.02
LAG_ENDS_AT_ONCE = 500  # partitions of one request: decoded in some ms
# A transaction that holds up the end of a log for so long is told. Kafka's producers end theirs
# within a minute (transaction.timeout.ms), or the coordinator does.
TRANSACTION_TOLD_MS = 60_000
TRANSACTIONS_NAMED = 10  # partitions in /health; each group's description marks all of its own
LAG_ANSWER_S_MAX = 5.0  # a broker that hangs does not keep the lag of the others
LAG_REFRESH_S_MAX = 2.0  # an operator who describes a group waits so long for its lag
SEEK_ANSWER_S_MAX = 10.0  # a broker that hangs does not keep the plan for the others
SEEK_PARTITIONS_AT_ONCE = 500  # of one question to a broker: decoded in some ms
HISTORIES_MAX = 2_000  # of groups and their topics: some 8 MB
TOPICS_ASKED_AT_ONCE = 500  # whether they are deleted: an answer is decoded in some ms
STOPPED_MS = 60_000  # a group without members that stands so long has stopped: no restart takes so
STOPPED_GROUPS_NAMED = 10  # in /health; the overview marks all of them
WINDOW_LOAD_S_MAX = 5.0  # an operator waits this long for a window that is not in memory
VALUE_BYTES_SHOWN = 64 * 1024  # of a parked record's value; some screens of JSON
PARKED_KEYS_READ_MAX = 1_000  # keys read again from Kafka to be shown, per window
# Parked records looked at, or decided about, in one turn of the event loop: some milliseconds. What
# is decided is one step in Redis, and before Redis 7 a call takes a million words.
PARKED_AT_ONCE = 2_000
CLAIMS_MAX = 3  # a window that was just closed may still be on its way into memory, and claim
LOGGED_PLACES_MAX = 20  # partitions of one log line
RECOGNISED_AT_ONCE = 32  # two questions each, on the one connection to their coordinator

# Names remembered; groups beyond are looked at again each time groups are listed.
NOT_KEY_SHARED_GROUPS_MAX = 10_000
EFFECT_KEYS_MAX = 100_000  # keys looked at for a preview of key filters
EFFECT_KEYS_AT_ONCE = 500  # of them, before other work goes on: some milliseconds

# Records read from upstream for their time at one look, a batch each (mostly below 1 MiB): those of
# groups that stopped are read once.
OLDEST_PER_LOOK = 256
OLDEST_AT_ONCE = 8
OLDEST_LOOK_S_MAX = 5.0  # a broker that hangs does not hold up the next look
