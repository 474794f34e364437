"""Bounds of the distribution, each with its reason; the unit is in the name."""

from __future__ import annotations

from spark.streaming.core.limits import TRANSACTION_BYTES_MAX

ANSWER_S = 30.0  # for one request to a cluster, retries of the client included
COORDINATOR_LOOK_S = 0.2  # from one question to a coordinator that is none yet to the next
PROBE_S = 5.0  # to find out whether a cluster answers at all
# Kafka's largest request. Records are refused by the topic's own max.message.bytes.
RECORD_BYTES_MAX = 100 * 1024 * 1024
# Of records that the target has not taken; then the task waits. librdkafka never takes a record
# that is larger than its queue. A transaction bounds what is there besides the largest record.
QUEUE_KBYTES = (RECORD_BYTES_MAX + TRANSACTION_BYTES_MAX) // 1024
PIECE_BYTES = 2 * 1024 * 1024  # of an Arrow batch that is written before the task looks up
# Connections and threads of a worker: a producer has one of each per broker.
PRODUCERS_KEPT_MAX = 32
CONSUMERS_KEPT_MAX = 4  # of clusters: links and pipelines of one worker
KEPT_S = 300.0  # brokers close connections that rest for 10 minutes, and forget producers
CAREFUL_RECORDS = 500  # of one transaction in which each record is sent on its own
BATCH_BYTES = 1_000_000  # librdkafka's own limit of what it sends at once to a partition
BATCH_OVERHEAD_BYTES = 100  # the head of a batch, which the topic's limit includes
FLUSH_LOOK_S = 0.1  # a record that has failed is noticed after this
POLL_EVERY_RECORDS = 1_000  # librdkafka's queue of delivery reports is served this often
# Records that Spark's source takes from the consumer at once. After each time it seeks to both ends
# of the partition to see whether records were deleted, and the consumer drops all it has fetched
# beyond these: with Kafka's 500, 1 MiB of short records is fetched nine times over.
POLL_RECORDS_MAX = 5_000
REPEATS_SCANNED_MAX = 200_000  # records of the target's end read for origins after a crash
UNREADABLE_SCANNED_MAX = 2_000_000  # records of a partition looked through for an odd timestamp
UNFORWARDED_SCANNED_MAX = 200_000  # offsets of a partition compared at once before a switch
SURVEY_EVERY_S = 2.0  # topics, partitions, settings and switches are looked at this often
HIGH_WATERMARKS_EVERY_S = 10.0  # and whether transactions of the source are open, this often
SURVEY_REST = 20  # times what a look took, from one to the next: of thousands of topics it is long
SURVEY_EVERY_S_MAX = 15.0  # and yet an operator's switch is not to wait for long
BATCH_LOOK_S = 1.0  # of a batch that goes on after that: the process may be told to end
BATCH_ENDS_S = 10.0  # a batch that is copied has this long to end before its query is stopped
# Of the end of each partition without a position, to find copies of an earlier life of the link,
# and of each span further back: there are 20 of them in a log of 300 million records.
OWN_COPIES_SCANNED_MAX = 300
OWN_COPIES_SCANNED_BACK = 100
PARTITIONS_SCANNED_AT_ONCE = 500  # by one consumer
OFFSETS_AT_ONCE = 250  # partitions whose logs are asked for at once
LEADERS_MS = 5_000  # of partitions: asked for again when their logs are asked for after this
# Positions of one commit: the broker writes them as one batch of 1 MiB at most, and refuses some
# thousand as an unknown error.
POSITIONS_AT_ONCE = 500
FENCED_AT_ONCE = 8  # partitions of a target that a link leaves; each is a transaction there
LEASE_SESSION_MS = 10_000  # a killed process of a link gives way to the next one after so long
STANDBY_LOOKS_EVERY_S = 10.0  # a process without the lease looks whether another one has it
# Positions of topics that are gone from the source. A cluster that is restored may take days, and a
# topic that is made anew is known by the old one's id. Kafka keeps positions for a week, too.
LEFT_KEPT_MS = 7 * 24 * 3_600 * 1_000
# A pipeline's position is committed again after so long, also of a partition that rests: Kafka
# forgets it offsets.retention.minutes (a week by default) after its last commit. So many at a time:
# each is a transaction, and the next batch waits for it.
COMMITTED_AGAIN_S = 3_600.0
COMMITTED_AGAIN_AT_ONCE = 20
LEFT_ASKED_AT_ONCE = 500  # of one query's beginning
CONFIGS_S = 60.0  # configs of topics are asked for again after this
# Of one look, to take turns: of topics whose ids and configs are asked for again.
IDENTITIES_AT_ONCE = 100
CONFIGS_AT_ONCE = 50
RETRY_S = 1.0  # after a failure; after each further one twice as long ...
RETRY_S_MAX = 15.0  # ... up to this
TRIES_MAX = 5  # of a pipeline without progress: half a minute
RETRY_REFUSED_S = 30.0  # a topic whose record was refused is tried again after this; then twice ...
RETRY_REFUSED_S_MAX = 480.0  # ... as long, up to this: each try is a new query for all topics
LOOK_AT_STOPPED_S = 30.0  # topics that stopped at their positions: an operator may have set them
QUIET = 2  # librdkafka's own log: errors reach the caller, a cluster that is away is no emergency
