"""Every bound of the gateway, with its reason; the unit is in the name."""

from __future__ import annotations

# --- frames and connections (gateway/core/forwarding/, gateway/listen/)

# Kafka's socket.request.max.bytes, which is also what Kroxylicious and kafka-proxy take.
FRAME_BYTES_MAX = 100 * 1024 * 1024

# Kept per connection and direction, session and socket buffer together.
HELD_BYTES_MAX = 256 * 1024

# uvloop reads at most 256,000 bytes at once. Reading stops when either of the two buffers of a
# direction exceeds this, so one more read can never pass HELD_BYTES_MAX.
PAUSE_ABOVE_BYTES = 2 * 1024

# A request head: 14 bytes, a client id and (Produce) a transactional id, both below 32 KiB.
HEAD_BYTES_MAX = 68 * 1024

# A response of this size is complete before it leaves, so its node endpoints can be rewritten at
# any length. Larger ones are walked as they stream, and their endpoints overwritten in place.
WHOLE_RESPONSE_BYTES_MAX = 64 * 1024

# Node endpoints of 1,000 brokers are below 100 KiB.
RESPONSE_TAIL_BYTES_MAX = 128 * 1024

# A share request acknowledges about 1 byte per record and 20 per range: 100 partitions with 2,000
# separate records each are 4 MB.
LOCAL_REQUEST_BYTES_MAX = 8 * 1024 * 1024

# Requests forwarded and not yet answered. Kafka's own clients stop at 5, librdkafka at 1,000,000 by
# configuration; Kafka itself works on one at a time, so nothing is gained by sending it more.
PIPELINED_REQUESTS_MAX = 1_024

# One request at a time is what Kafka does per connection; ask_upstream may ask a few at once.
INJECTED_REQUESTS_MAX = 64

CONNECT_TIMEOUT_S = 5.0  # to one upstream address; TCP's own first retry comes after 1 s

# A client whose connection is closed right after it was accepted comes back at once (a librdkafka
# share consumer 35 times a second), one that is refused backs off. So an upstream that is away is
# asked again for a while before the client is let go.
UPSTREAM_PATIENCE_S = 1.0
UPSTREAM_AGAIN_S = 0.25

FIRST_REQUEST_S = 60.0  # a connection without one has no upstream to close it when it idles
CLOSE_FLUSH_S = 5.0  # what was received may still go out after the other side has closed
ABORT_S = 1.0  # for the event loop to see that aborted connections are gone
LISTEN_BACKLOG_CONNECTIONS = 512

# --- reading from upstream (gateway/reading/reader.py, gateway/core/reading/)

# Decompressed batches of the whole gateway: 4 partitions of 16,384 offsets of 1 KiB are two thirds
# of it. With 64 full windows (105 MiB) and a node that does nothing (66 MiB) it stays below 300
# MiB.
CACHE_BYTES_MAX = 96 * 1024 * 1024
TRIM_READ_BYTES_MIN = 32 * 1024 * 1024  # read, since memory was last given back to the system

FETCH_BYTES_MAX = 8 * 1024 * 1024  # one response: decoded in a few ms, so the loop stays responsive
FETCH_PARTITION_BYTES_MAX = 1024 * 1024  # Kafka's own default; some 8,000 records of 100 bytes

# Decompressed, of one partition's part of a response; one batch may be more.
SCAN_BYTES_MAX = 32 * 1024 * 1024

# A broker answers the requests of a connection one after the other, so each outstanding Fetch has
# a connection: one for partitions where nothing happens, one for those that are waiting to join
# them, the rest for those that are busy.
FETCH_LANES = 4
QUIET_MS = 20  # a partition without anything new for so long is one where nothing happens
LONG_POLL_MS = 500  # Kafka's own default; a restart of ours waits for no longer poll
SHORT_POLL_MS = 20  # until the long poll has ended and takes more partitions
BUSY_POLL_MS = 5  # the longest that a partition waits for a lane when others have taken all

RETRY_BASE_MS = 100  # after an error of a partition or a broker: doubles ...
RETRY_MAX_MS = 2_000  # ... to here
# A topic that stays unknown this long was deleted; a new one takes Kafka well under a second to
# show everywhere.
UNKNOWN_TOPIC_MS = 5_000

# --- the gateway's own requests (gateway/upstream/, gateway/reading/dead_letters.py)

ANSWER_BYTES_MAX = 128 * 1024 * 1024  # more than any answer to what the gateway asks for
SETTLING_PAUSE_MS = 100  # between attempts at something the cluster is about to settle
STALE_PAUSE_MS = 50  # requests for a fresh view are gathered this long
# Of the session lifetime the broker grants (KIP-368); Java uses 85 to 95 %.
REAUTHENTICATE_AT = 0.85
DEAD_LETTER_WRITE_MS_MAX = 15_000  # then the window keeps the key and tries again with back-off
# Read, sent and awaited together, of one partition: so many, or fewer if they are large; one is
# written however large it is. Each is held three times: as read, taken apart, and by the producer.
DEAD_LETTERS_AT_ONCE = 500
DEAD_LETTER_PART_BYTES_MAX = 8 * 1024 * 1024
DEAD_LETTER_PARTS_MAX = 4  # at once, of all partitions; the others wait
DEAD_LETTER_BYTES_MAX = 100 * 1024 * 1024  # the broker decides what is too large, not we
PRODUCER_STOP_S_MAX = 5.0  # half of STOP_S_MAX: the commit comes before it

# --- share groups

TICKED_AT_ONCE = 500  # windows between two looks at other work: one or two milliseconds
TICK_MS = 500  # the watchdog; six ticks make the disconnect grace
# To find out whether a name is that of a group of another type; then a member may join.
OTHER_GROUP_TYPE_S_MAX = 2.0
GROUP_MEMBERS_MAX = 1_000  # per group; the ring holds 100 points for each
# Of one member. Each is looked up, watched and asked about: 100,000 names that do not exist held
# the node for a minute.
SUBSCRIBED_TOPICS_MAX = 1_000
SHARE_SESSIONS_MAX = 2_000  # per virtual broker; Kafka's own group.share.max.share.sessions
# Partitions of a session that do not exist: each is an error row of every answer. More are
# answered once; a member is assigned none of them.
SESSION_UNKNOWN_PARTITIONS_MAX = 1_000
# A stock client opens one; what others have is not to be used up from one connection.
CONNECTION_SHARE_SESSIONS_MAX = 100
SESSION_PARTITIONS_MAX = 50_000  # 50 topics of 1,000 each, with an error row for every one
# Records of one answer, whatever a client asks for: a broker's own fetch.max.bytes. A librdkafka
# takes no response of more than 100 MB (receive.message.max.bytes).
SHARE_FETCH_BYTES_MAX = 55 * 1024 * 1024
SHARE_FETCH_WAIT_MS_MAX = 60_000  # a client asks for 500 ms; beyond a minute it is no long poll
WINDOW_RETRY_MS_MIN = 100  # loading a window again: doubles from here ...
WINDOW_RETRY_MS_MAX = 5_000  # ... to here, while the store or upstream is away
DELETED_TOPICS_MS = 600_000  # between two looks for them; what two found unknown is deleted
MISSING_TOPIC_MS = 2_000  # between questions for a topic that members subscribe to and is not there
TOPIC_UNUSED_MS = 60_000  # a topic without use for this long, twice at most, leaves the view
STORE_RETRY_MS = 100  # before a failed write is tried again: a Redis starts in about 50 ms
COMMIT_WAIT_S_MAX = 2.0  # a window that the store has does not wait longer for what Kafka has
ACKNOWLEDGE_WAIT_S_MAX = 5.0  # for windows that are away; a client waits 30 s for its answer
WINDOW_IDLE_MS_MAX = 60_000  # without members and with everything committed, a window leaves memory
# An empty group is forgotten after Kafka's own offsets.retention.minutes; its positions stay in the
# store, and in Kafka as long as Kafka keeps them.
GROUP_EMPTY_MS_MAX = 7 * 24 * 60 * 60 * 1000
# Anybody may join and leave under any name. The one that has been empty for longest goes first.
EMPTY_GROUPS_MAX = 10_000
HEALTH_STORE_S_MAX = 1.0  # what a probe waits for Redis; kubelet gives one second by default
LAG_MS = 10_000  # between two looks at where logs end; Prometheus asks every 15 s or more rarely
LAG_STORED_EVERY = 6  # looks: the store is asked for windows that are not in memory
LAG_ENDS_AT_ONCE = 500  # partitions of one request: decoded in some ms
LAG_ANSWER_S_MAX = 5.0  # a broker that hangs does not keep the lag of the others
LAG_REFRESH_S_MAX = 2.0  # an operator who describes a group waits so long for its lag
GROUP_CONFIG_MS = 30_000  # between two looks at what Kafka has set for a group
# Looks after an admin has set something: a broker shows it when its metadata has caught up.
GROUP_CONFIG_ALTERED_MS = (0, 100, 400, 1_600)
AUTHORISATION_MS_MAX = 30_000  # an upstream ACL verdict is trusted this long per connection
AUTHORISATIONS_MAX = 4_096  # remembered per connection; who asks about more names asks upstream
MEMBERSHIP_RETRY_MS = 500  # between attempts to write memberships behind
# Members and unsettled offsets of windows that hear of a change before other work goes on: 5 to 10
# ms. One window is told whole.
MOVES_AT_ONCE = 16_384
RESTART_GRACE_MS = 10_000  # after a restart a member has two heartbeat intervals to show itself
STOP_S_MAX = 10.0  # to persist and commit at stop; what is not committed is in the store

# --- operators, key filters

FILTER_GLOBS_MAX = 32  # per member: each new key is matched against all of them
FILTER_GLOB_BYTES_MAX = 256  # a key of 1 MB takes at most some 13 ms for each glob
FILTER_RULES_MAX = 1_000  # per group: each join is matched against all of them
ADMIN_BODY_BYTES_MAX = 1024 * 1024  # 16,384 offsets of 19 digits are a third of it
WINDOW_LOAD_S_MAX = 5.0  # an operator waits this long for a window that is not in memory
PARKED_KEYS_READ_MAX = 1_000  # keys read again from Kafka to be shown, per window
CLAIMS_MAX = 3  # a window that was just closed may still be on its way into memory, and claim
LOGGED_PLACES_MAX = 20  # partitions of one log line
RECOGNISED_AT_ONCE = 32  # two questions each, on the one connection to their coordinator
# Names remembered; groups beyond are looked at again each time groups are listed.
NOT_KEY_SHARED_GROUPS_MAX = 10_000

# --- the process

GC_ALLOCATIONS = 50_000  # between collections of young objects; some 5 MB
