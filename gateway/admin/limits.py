"""Bounds of the REST API and of health probes. Units are in the names."""

from __future__ import annotations

ADMIN_BODY_BYTES_MAX = 1024 * 1024  # 16,384 offsets of 19 digits are a third of it
PAGE_ROWS_MAX = 1_000  # of one page of a list: some 200 KB
ROWS_AT_ONCE = 50  # rows of a list that are made before other work goes on: under a millisecond
ID_MAX = 2**63 - 1  # of a connection or a line of the audit: none is used twice
PAGE_HEADERS_MAX = 50  # rows of one page with headers: each may take a Fetch; 1 MB at the worst
PAGE_WINDOWS_MAX = 100  # windows of one page: a millisecond or two each
HISTORY_TOPICS_SHOWN = 20  # of one group: 90 points of five figures each, some 60 KB
RUNS_MAX = 512  # of one window's picture: more than a screen can show, some 25 KB
HOT_KEYS_SHOWN = 20
KEYS_MAX = 100  # of one page: hot keys, or partitions with a key that is looked up
KEY_BYTES_MAX = 4 * 1024  # of a key that is asked for: it stands in the address of the request
CONNECTION_APIS_SHOWN = 20  # requests of one connection that are not answered; all are counted
CONNECTION_MEMBERS_SHOWN = 20  # a client has one or two

# Failed logins: beyond these the answer is 429. A right token always passes, so that nobody can
# lock an operator out.
FAILED_LOGINS_MS = 60_000  # counted in intervals of so long
FAILED_LOGINS_PER_ADDRESS_MAX = 10  # a person who mistypes; a guess at 256 random bits is hopeless
FAILED_LOGINS_MAX = 200  # of all addresses together
FAILED_ADDRESSES_MAX = 1_000  # remembered, some 100 bytes each; beyond them the oldest goes

# Questions to other nodes. A node that is frozen counts as dead after 6 s, and is then not asked.
PEER_S_MAX = {"GET": 3.0, "POST": 15.0, "DELETE": 15.0}  # an act may load a window for 10 s
OVERVIEW_PEER_S_MAX = 1.5  # for the overview of another node: a page takes 5 s for stale
PEER_ANSWER_BYTES_MAX = 4 * 1024 * 1024  # of one node, parsed in some 30 ms
NONCE_CHARS_MAX = 64  # of a question for a proof
REASON_CHARS_MAX = 500  # of a node that does not answer
PEERS_MAX = 64  # nodes asked for one answer

LOGIN_SESSIONS_MAX = 1_000  # browsers that are logged in; beyond them the oldest session ends
SESSION_MS = 12 * 3_600_000  # a working day; then the browser asks for the token again

STATUS_S_MAX = 30  # of a look at the status of all clusters; the first has the command's start
STATUS_EVERY_S = 2  # from one look to the next: the services write theirs as often
STATUS_IDLE_MS = 45_000  # the command ends when nobody has asked for so long; it takes 2 s to start
STATUS_KEPT_MS = 5_000  # a failure, however many ask: to start the command again costs CPU
STATUS_BYTES_MAX = 64 * 1024 * 1024  # of one look: 100,000 partitions of groups
STATUS_PORTION_BYTES = 16 * 1024  # of one, read between two pauses: some 0.3 ms
STATUS_PAUSE_S = 0.0002  # for the node's clients; 64 MiB then take some 3 s in place of one
STATUS_PROBLEMS_SHOWN = 20  # lines of one answer: clusters that are away

DECODE_S_MAX = 20.0  # of one value by its schema: the process starts in a second
DECODE_BYTES_MAX = 4 * 1024 * 1024  # of its JSON, from 64 KiB of the value at the most
DECODES_AT_ONCE = 2

AUDIT_ROWS_MAX = 1_000  # of callers, and of strangers: in memory, some 500 bytes each
AUDIT_DUE_MS = 1_000  # between two looks for counts of refusals to be written
AUDIT_OFFSETS_SHOWN = 20  # of one line
AUDIT_TEXT_CHARS_MAX = 256  # of a name that somebody without a token chose

SAMPLES_AT_ONCE = 200  # of metrics, written before other work goes on: a millisecond or two

OVERVIEW_S = 2.0  # between two snapshots for the dashboard, while somebody looks
OVERVIEW_S_MAX = 4.5  # the same where a snapshot takes long: the page takes older data for stale
OVERVIEW_PAUSE_FACTOR = 20  # times the making of a snapshot: the pause behind it
OVERVIEW_GROUPS_MAX = 1_000  # groups of a snapshot: some 400 KB, every OVERVIEW_S to each viewer
OVERVIEW_WINDOWS_AT_ONCE = 50  # windows counted before other work goes on: some 200 microseconds
VIEWERS_MAX = 32  # open dashboards; more of them poll
VIEWER_SEND_S_MAX = 10.0  # a viewer that takes nothing for so long is dropped
VIEW_S_MAX = 60.0  # of one event stream; then the browser opens another, and is looked at again
