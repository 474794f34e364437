"""Bounds of several nodes. Units are in the names."""

from __future__ import annotations

# Each node shows itself, and reads what the others say. A planned move takes one beat to be seen,
# and one to be made; a beat is a round trip to Redis of some 0.2 ms.
BEAT_MS = 250
BEAT_S_MAX = 2.0  # of one beat; then Redis counts as away

# A node that was not heard of for so long is dead. A broker's own fail-over takes 9 s.
SESSION_MS = 6_000

# Between two beats the clock of Redis was put forward (NTP, a fail-over) by more than this: who is
# silent may be alive. Less takes nobody for dead: a session has many beats.
CLOCK_FORWARD_MS = 1_000

# To let go of virtual brokers: their windows are persisted. A store that is slower does not hold up
# a move; then the next owner continues from what is stored, as after a crash.
HAND_OVER_S_MAX = 2.0

# A client may not have noticed for so long that a coordinator has another address: it waits for
# answers of a host that is down (60 s by default) before it asks again.
COORDINATOR_MOVED_S = 300.0

# All nodes notice within this that a broker of Kafka has gone or come. Nodes that listen for
# different brokers for longer do so on purpose.
BROKERS_SEEN_S_MAX = 5.0

# A broker of Kafka that does not answer a node for so long, and another node for which it does: the
# other one gets its virtual brokers. Two questions without an answer take 5 s (PING_MS).
SILENT_S = 10.0
REACHED_S = 20.0

# A node that stands alone says so this often, for SESSION_MS.
LONE_EVERY_MS = 1_000

# A row of a node that is gone stays so long, for `keyway node list`.
GONE_SHOWN_MS = 3_600_000

# Topics that a node tells the others of in one script, of some microseconds each.
TOPICS_TOLD_AT_ONCE = 500
