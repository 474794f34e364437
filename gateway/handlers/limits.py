"""Bounds of share requests. Units are in the names."""

from __future__ import annotations

# Of one member. Each is looked up, watched and asked about: 100,000 names that do not exist held
# the node for a minute.
SUBSCRIBED_TOPICS_MAX = 1_000

# Partitions of a session that do not exist: each is an error row of every answer. More are
# answered once; a member is assigned none of them.
SESSION_UNKNOWN_PARTITIONS_MAX = 1_000

# Of one virtual broker: Kafka recommends some 4,000 partitions for a broker. An error row
# for every one is encoded in 55 ms.
SESSION_PARTITIONS_MAX = 15_000

# Of an answer about groups: a position is a row; or members, their topics, and 16 partitions of a
# topic. Groups beyond that are left to the next request, as while a coordinator loads: admin tools
# ask again for those alone. One group may be more: 1,000 members with a hundred topics each.
DESCRIBED_ROWS_MAX = 20_000
DESCRIBED_GROUP_ROWS_MAX = 120_000
PARTITIONS_OF_A_ROW = 16

# Handled in one turn of the event loop, in a few ms each; then other clients have theirs.
TURN_PARTITIONS = 1_000
TURN_RANGES = 10_000

# Cut out before their lease leaves for the store: that takes less than a turn of the event loop.
CUT_FIRST_RECORDS_MAX = 100

# Records of one answer, even if a client asks for more: some 100,000 records. Three copies are held
# while it is encoded, which takes a few ms. One record of any size is always sent.
SHARE_FETCH_BYTES_MAX = 16 * 1024 * 1024

# Between two looks for room, while unread answers of other clients take it all.
NO_ROOM_S = 0.1

SHARE_FETCH_WAIT_MS_MAX = 60_000  # a client asks for 500 ms; beyond a minute it is no long poll
ACKNOWLEDGE_WAIT_S_MAX = 5.0  # for windows that are away; a client waits 30 s for its answer

# A node that does not hear of the others sends its clients to look for them, each so often: while
# Redis is away for all, they come back.
UNHEARD_MS = 5_000

# Ids of members are UUIDs that clients make up: 22 to 36 characters. They are kept, saved and
# logged with each join, as are the names of groups and clients and the rack.
MEMBER_ID_CHARS_MAX = 255
GROUP_ID_CHARS_MAX = 1_024
CLIENT_ID_CHARS_MAX = 4_096  # holds key filters, too
CLIENT_ID_CHARS_LOGGED = 512  # of a refused client: its id may have 32,767
RACK_ID_CHARS_MAX = 255
