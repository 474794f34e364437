"""Bounds of groups and their members. Units are in the names."""

from __future__ import annotations

# To find out whether a name is that of a group of another type; then a member may join.
OTHER_GROUP_TYPE_S_MAX = 2.0

# Clients of one deployment that start together join within this time; a lone one hardly notices it.
GROUP_START_MS = 500
GROUP_MEMBERS_MAX = 1_000  # per group; the ring holds 100 points for each

# An empty group is forgotten after Kafka's own offsets.retention.minutes; its positions stay in the
# store, and in Kafka as long as Kafka keeps them.
GROUP_EMPTY_MS_MAX = 7 * 24 * 60 * 60 * 1000

# Anybody may join and leave under any name. The group that has been empty for longest goes first.
EMPTY_GROUPS_MAX = 10_000
# Of these, with metrics of their own: 25 lines each on four partitions, and 20 of its outcomes.
EMPTY_GROUPS_SHOWN_MAX = 1_000

# Names of topics that members of empty groups had: 60 MB with the longest ones. A join may bring a
# thousand. Of the groups that have been empty for longest nobody knows any more then who left.
EMPTY_TOPIC_NAMES_MAX = 200_000
GROUP_CONFIG_MS = 30_000  # between two looks at a group's settings in Kafka

# A value set through the gateway counts over the one a broker shows for so long: its metadata
# catches up within seconds. Remembered for so many groups.
ALTERED_SHOWN_MS = 60_000
ALTERED_GROUPS_MAX = 10_000

# Of several nodes: from one look at the members that others saved to the next, and the wait of a
# fetch whose member is not among them yet.
COPY_LOOK_MS = 250
COPY_WAIT_S_MAX = 1.0
# Changes of members that wait in Redis for nodes to read them, and how many a node reads at once. A
# node that is further behind reads all rows. An entry has some 200 bytes, 20 KiB at most.
CHANGES_KEPT_MAX = 2_000
CHANGES_READ_MAX = 1_000
COORDINATOR_ASKED_MS = 1_000  # between two questions for the coordinator of one group
# Kafka may move a coordinator while no request tells this node so. A member has 45 s by default.
COORDINATOR_KEPT_MS = 5_000
COORDINATORS_ASKED_AT_ONCE = 200  # with each look, in one request

# A planned stop: the fetches of a member that is not at work come twice a second.
FAREWELL_S_MAX = 1.0
FAREWELL_LOOK_S = 0.02

# Topics of groups whose number of partitions at the group's start a node remembers: 200 bytes each.
BEGUN_TOPICS_MAX = 50_000

MEMBERSHIP_RETRY_MS = 500  # between attempts to write memberships behind
RESTART_GRACE_MS = 10_000  # after a restart a member has two heartbeat intervals to show itself
# Rows of a table are written in portions, below a millisecond or two each.
TABLE_WRITE_BYTES = 256 * 1024
TABLE_NAMES_AT_ONCE = 500

# Between two looks at whether somebody reads the topics of members that left.
DEPARTED_LOOK_MS = 5_000
TICK_MS = 500  # the watchdog; six ticks make the disconnect grace

# Rules of key filters set over REST, for all groups together: some 40,000 rules. A rule takes some
# 600 bytes of memory beside its text, and each glob of it 60.
FILTER_SETS_BYTES_MAX = 32 * 1024 * 1024
FILTER_RULE_BYTES = 600
FILTER_GLOB_BYTES = 60
# What rules and declarations gave to members, also to some that were refused: those of MEMBERS_MAX
# members with a few globs each. A member without filters takes so many bytes beside its client id.
FILTERS_REMEMBERED_BYTES = 40 * 1024 * 1024
FILTERS_MEMBER_BYTES = 300

# Members whose requests one connection carries. A stock client is one; a program may join several.
CONNECTION_MEMBERS_MAX = 100
# Different subscriptions of those members: names of topics, some 300 bytes each at most.
CONNECTION_TOPIC_NAMES_MAX = 20_000
MEMBERS_MAX = 50_000  # of all groups: some 2 KiB each
# Of one client that has authenticated with a name: no tenant takes the room of all others.
PRINCIPAL_MEMBERS_MAX = 10_000
REFUSED_TOLD_MS = 10_000  # between two lines of the log about members that are too many

SHARE_SESSIONS_MAX = 2_000  # per virtual broker; Kafka's own group.share.max.share.sessions

# A stock client opens one; one connection must not use up those of others.
CONNECTION_SHARE_SESSIONS_MAX = 100

# Members that left not long ago and are awaited, in the row of their group: one for all with the
# same key filters and topics. More than a deployment has at a time.
SAVED_DEPARTED_MAX = 100

# So often a node looks whether Redis still has the key filters that it knows.
FILTERS_LOOK_S = 30

# Groups whose key filters were removed: so many versions are kept, so that an older file of Redis
# does not bring the filters back.
REMOVED_FILTERS_MAX = 1_000
