"""Bounds of the shells of schema distribution, each with its reason."""

from __future__ import annotations

ANSWER_S_MAX = 30.0  # a registry that is slower is taken as away; Confluent's own limit is 30 s
WHOLE_ANSWER_S_MAX = 120.0  # a list of 100,000 schemas that arrives bit by bit; longer is away
CONNECT_S_MAX = 5.0  # loopback and data centres answer within milliseconds
BODY_BYTES_MAX = 256 * 1024 * 1024  # a list of 100,000 schemas of 2 KB; more is hostile
PAGE_SCHEMAS = 1_000  # per request for lists; a few MB
PAGES_MAX = 10_000  # ten million schemas: more than an id space of any registry in use
REQUESTS_AT_ONCE = 8  # to one registry; more were not faster
CONNECTION_IDLE_S_MAX = 4.0  # uvicorn, which serves Karapace, closes idle connections after 5 s
WRITES_AT_ONCE = 256  # noted in the ledger together; a crash leaves at most so many unsure
NOTED_AT_ONCE = 10_000  # of an adopted registry; librdkafka's queue holds 100,000 records
PLANS_MAX = 8  # per round: removals, then registering, then modes; each needs a plan of its own
READ_BACK_S_MAX = 15.0  # a registry serves a record of its log within a second
REREAD_S = 300.0  # without news, a target is read anew, in case somebody else wrote to it
REREAD_S_MAX = 3_600.0  # as well if there is always news, which waits for it meanwhile
RETRY_S_MIN = 1.0  # after a failure; doubles
RETRY_S_MAX = 60.0  # a registry that was away is found again within a minute
RECORD_BYTES_MAX = 8 * 1024 * 1024  # of `_schemas`; Kafka's default is 1 MB
LEASE_S_MAX = 30.0  # to get an answer about the lease
LEASE_SESSION_MS = 10_000  # a killed holder's lease is free after it
LOOK_S = 20.0  # from one question by name for an absent version to the next
CREATED_S_MAX = 10.0  # until all brokers know a topic that was created
CREATED_POLL_S = 0.1
READ_BATCH = 1_000  # records of a log taken at once; a few MB
LEFT_ALONE = 10_000  # versions of a log; these the garbage collector passes by from then on
READ_TURN_S = 0.1  # librdkafka waits as long for a batch to fill: the delay at a log's end
SHOWN_MAX = 200  # refusals in a status record, of 2 KB at most: it must fit Kafka's 1 MB
PROBE_SUBJECT = "_keyway-probe"  # internal by its name, so it is never distributed
PROBE_VERSION = 7  # no registry that counts its versions itself begins there
LOGGED_MAX = 10  # refusals logged per round; the status has more
AUTHORISED_S = 60.0  # a view asks the primary about a client's credentials as often
AUTHORISED_KEPT_MAX = 10_000  # credentials known to be good; a digest each
# Of a request to a view: a schema must fit a record of `_schemas`, 1 MB unless Kafka is told
# otherwise, and is longer as JSON.
VIEW_BODY_BYTES_MAX = 2 * 1024 * 1024
VIEW_BODY_S_MAX = 30.0  # for its bytes to arrive
VIEW_BODIES_AT_ONCE = 16  # read or looked up; more wait
VIEW_TEXT_CHARS_QUICK = 16 * 1024  # a longer text is compared in a thread: milliseconds each
VIEW_CONNECTIONS_MAX = 512  # one more takes the place of one that waits for its client
VIEW_BEAT_S = 1.0  # from one line about itself to the next, for the node that started it
VIEW_PROBLEM_CHARS_MAX = 300  # of its reason there
VIEW_POLL_S = 0.2  # how often a view looks for news in the log
LISTED_MAX = 10_000  # writes and refusals that `check` lists; a table nobody reads further
TOLD_EVERY_S = 2.0  # a command that takes longer names its step
BEAT_S = 10.0  # from one sign of life of the service to the next, on every target
SILENT_MS = 60_000  # without a sign of life: the service has ended, or hangs
WRITING_TOLD_EVERY_S = 10.0  # a line of the log in a first distribution of minutes
