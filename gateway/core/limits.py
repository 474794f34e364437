"""Bounds of the pure parts, with their reasons: frames, fetches, key filters. Units are in the
names. Each other room has a `limits.py` of its own.
"""

from __future__ import annotations

# Kafka's socket.request.max.bytes, as in Kroxylicious and kafka-proxy.
FRAME_BYTES_MAX = 100 * 1024 * 1024

# A request head: 14 bytes, a client id and (Produce) a transactional id, both below 32 KiB.
HEAD_BYTES_MAX = 68 * 1024
# Tagged fields of a request header: Kafka defines none. A head that comes byte by byte is looked
# through with every byte.
HEADER_TAGS_MAX = 16

# A response of this size is complete before it leaves, so its node endpoints can be rewritten at
# any length. Larger ones are walked as they stream, and their endpoints overwritten in place.
WHOLE_RESPONSE_BYTES_MAX = 64 * 1024

# A response that is rewritten is held, decoded and encoded whole: Metadata aside, a fraction of it.
REWRITTEN_RESPONSE_BYTES_MAX = 16 * 1024 * 1024
# Metadata is held whole, and only its brokers are decoded. 200,000 partitions with three replicas
# are 9 MB, and 63 MB if each is a topic of its own with the longest name.
METADATA_BYTES_MAX = 64 * 1024 * 1024

# The same of DescribeConfigs: all configs of a broker, with documentation and synonyms, are 0.1 MB,
# and 11 MB hold the event loop up for 190 ms. Answers that are not about a broker pass unread.
REWRITTEN_CONFIGS_BYTES_MAX = 512 * 1024

# Node endpoints of 1,000 brokers are below 100 KiB.
RESPONSE_TAIL_BYTES_MAX = 128 * 1024

# A share request acknowledges about 1 byte per record and 20 per range: 100 partitions with 2,000
# separate records each are 4 MB.
LOCAL_REQUEST_BYTES_MAX = 8 * 1024 * 1024

# Before a client has authenticated, where upstream asks for it, nothing else is of use to it.
UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * 1024
# ApiVersions and SaslHandshake, at any time: a few hundred bytes and a client id below 32 KiB.
# Six ApiVersions of 99 MB of tagged fields each took a broker with 1 GB of heap down.
HANDSHAKE_BYTES_MAX = 36 * 1024
# A token of OAUTHBEARER or Kerberos: Kafka's sasl.server.max.receive.size.
SASL_TOKEN_BYTES_MAX = 512 * 1024

# Any request but Produce, which alone carries records. A broker takes a request apart whole, with
# many times its bytes. The longest of real clients: OffsetCommit of 4,000 partitions with 4 KB of
# metadata each, as Keyway's own commits have; Metadata of 50,000 long names; assignments of 100,000
# partitions. Group assignments end at the 1 MB of a record of __consumer_offsets.
PLAIN_REQUEST_BYTES_MAX = 16 * 1024 * 1024

# Requests forwarded and not yet answered. Kafka's own clients stop at 5, librdkafka at 1,000,000 by
# configuration; Kafka itself works on one at a time, so nothing is gained by sending it more.
PIPELINED_REQUESTS_MAX = 1_024

FETCH_BYTES_MAX = 8 * 1024 * 1024  # one response: decoded in a few ms, so the loop stays responsive
FETCH_PARTITION_BYTES_MAX = 1024 * 1024  # Kafka's own default; some 8,000 records of 100 bytes

# Memory of the scanned batches of one partition's part of a response; one batch may be more.
SCAN_BYTES_MAX = 32 * 1024 * 1024

# A copy of them takes a few ms; of 90 MB, which one batch may be, 100 ms (the system has to clear
# as much memory). More bytes are not copied (wire/long_bytes.py), and each step on their way has a
# turn of the event loop to itself.
LONG_STEP_BYTES = 8 * 1024 * 1024
# Scanned in one step: 2 ms, compiled. One batch may be a million.
LONG_STEP_RECORDS = 10_000
# Decompressed in one step. A byte may be dear, however little comes out of it: blocks of gzip with
# a table each take 0.7 s for a MB, and this 45 ms. Of other codecs more bytes are as dear as one of
# gzip: snappy in pieces of a byte takes 0.46 s for a MB, frames of zstd 0.04 s, those of lz4 5 ms.
LONG_STEP_COMPRESSED_BYTES = 64 * 1024
AS_DEAR_SNAPPY = 2
AS_DEAR_ZSTD = 8
AS_DEAR_LZ4 = 64

QUIET_MS = 200  # a partition without anything new for so long is one where nothing happens
LONG_POLL_MS = 500  # Kafka's own default; a restart of ours waits for no longer poll
BUSY_POLL_MS = 100  # of all partitions where something happens, in one fetch
SHORT_POLL_MS = 20  # of those that came while others were out; then all go on in one fetch
LAST_POLL_MS = 5  # on the last lane: the longest that a partition waits when others have taken all
REST_MS = 4  # from a poll that brought records to the next, while no fetch waits for more
JOIN_MS = 4  # polls that end within so long of each other go on as one; brokers are 2 ms late
RETRY_BASE_MS = 100  # after an error of a partition or a broker: doubles ...
RETRY_MAX_MS = 2_000  # ... to here
DELETED_TOPICS_MS = 600_000  # between two looks; a topic that two in a row miss is deleted
FILTER_GLOBS_MAX = 32  # per member: each new key is matched against all of them
FILTER_GLOB_BYTES_MAX = 256
# Of the distinct key filters of a group's members together, as declared_filters.py counts them: a
# new key is matched with all of them, in one step. Some 1,000 members with a prefix each.
FILTERS_COST_MAX = 65_536
FILTER_RULES_MAX = 1_000  # per group: each join is matched against all of them
MASK_RULES_MAX = 100  # of the values that REST shows; each is matched with each field
LISTENERS_MAX = 16  # for clients; a socket each for every virtual broker
TOKENS_MAX = 100  # of REST: each request is compared with all of them, some 30 microseconds
LIMIT_RULES_MAX = 100  # of clients; each connection is matched with all of them, twice
# Of rules with an account for each principal, client id or address; some 1 KB each. Those without a
# connection make room for others.
LIMIT_ACCOUNTS_MAX = 10_000
FILTER_SET_BYTES_MAX = 256 * 1024  # text of a group's rules: 1,000 of them with 256 bytes each

# Names of topics that the members of a group subscribe to beside each other: 20 members with 1,000
# topics of their own each, or 1,000 with 20. Some 6 MB with the longest names, 30 ms for a join.
# Any number of members may have the same topics.
GROUP_TOPIC_NAMES_MAX = 20_000

# Share sessions whose close is remembered for windows that are being loaded: some 1 MB. One of more
# counts as lost there.
CLOSED_SESSIONS_MAX = 10_000

GROUP_LINE_MS = 10_000  # from one log line of a group and kind of event to the next
# Pairs of group and kind with a line of their own in that time: 100 lines a second at most.
GROUP_LINES_MAX = 1_000

# Topics with metrics of their own, of each direction; a Prometheus keeps a series for each. So many
# more are watched: a busier one among them takes the place of the least busy.
TOPICS_SHOWN_MAX = 50
TOPICS_WATCHED_MAX = 10_000
# Topics that the bytes of plain clients are told apart by; some 8 MB.
TOPICS_NAMED_MAX = 20_000
# Numbers of a Produce request that are read to count its bytes by topic, a thousand and more
# partitions: some milliseconds. A request with more passes, and the rest of it is not counted.
WALK_NUMBERS_MAX = 50_000
