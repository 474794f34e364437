"""Bounds of client connections and of their ACL verdicts. Units are in the names."""

from __future__ import annotations

# Kept per connection and direction: by the connection state and by the socket buffer together.
HELD_BYTES_MAX = 256 * 1024

# One read of a socket, as much as uvloop's own of upstream. Reading stops when either of the two
# buffers of a direction exceeds the second one, so one more read can never pass HELD_BYTES_MAX.
READ_BYTES_MAX = 256_000
PAUSE_ABOVE_BYTES = 2 * 1024

# Read from clients and not taken by upstream, of all connections of a node. Beyond it each read of
# a client brings a small piece, so it is passed by one such piece for each client.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
SMALL_READ_BYTES = 4 * 1024

# Kafka works on one request at a time per connection; ask_upstream may ask a few at once.
INJECTED_REQUESTS_MAX = 64

CONNECT_TIMEOUT_S = 5.0  # to one upstream address; TCP's own first retry comes after 1 s
# Under way to one upstream address. A broker's accept queue has 50 places (Kafka's
# socket.listen.backlog.size). Beyond them the system answers with SYN cookies, and a client that
# sends its first request in pieces is then cut off.
CONNECTS_AT_ONCE = 16

# A client whose connection is closed right after it was accepted comes back at once (a librdkafka
# share consumer 35 times a second), one that is refused backs off. So an upstream that is away is
# asked again for a while before the client is let go.
UPSTREAM_PATIENCE_S = 1.0
UPSTREAM_AGAIN_S = 0.25
# For the first request, without which a connection has no upstream to close it when it idles; and
# for the login where there is one: upstream waits for it as long as for any request (10 minutes).
FIRST_REQUEST_S = 60.0
# Connections of one address whose rule is not known yet. Fewer would let the clients of a tenant
# that all come back at once wait for each other's logins.
UNDECIDED_MIN = 16
CLOSE_FLUSH_S = 5.0  # received bytes may still go out after the other side has closed
# Of answers to a client that has left: those of 10,000 Produce requests. With more of them the rest
# of its requests is given up; 20 fetches in a pipeline are answered with up to a GB.
DISCARDED_BYTES_MAX = 1024 * 1024
ABORT_S = 1.0  # for the event loop to see that aborted connections are gone
LISTEN_BACKLOG_CONNECTIONS = 512
LEAVERS_PER_TURN = 32  # clients whose sockets are closed in one turn of the event loop: some 2 ms
# Of answers, in the system's buffer of one client: beyond it the client does not take them. Without
# it the system takes up to 4 MB (tcp_wmem) for a client that reads slowly: a thousand of them on
# the node's machine used up the memory of all its TCP sockets. A broker has 100 KB for each.
NOT_SENT_BYTES_MAX = HELD_BYTES_MAX
AUTHORISATION_MS_MAX = 30_000  # an upstream ACL verdict is trusted this long per connection
AUTHORISATIONS_MAX = 4_096  # remembered per connection; questions beyond it go upstream
DESCRIPTORS_PER_CLIENT = 2  # its socket and the one upstream
# Of REST: 32 open dashboards and what else they ask, Prometheus, commands, other nodes.
REST_CONNECTIONS_MAX = 96
# For listeners, Redis, the node's own upstream connections, files, and for REST, which has to tell.
DESCRIPTORS_RESERVED = 160 + REST_CONNECTIONS_MAX
ADMIT_AGAIN_SHARE = 0.95  # of the clients there may be: fewer end an episode of refusals

# Requests that the gateway answers, from their first byte until they are answered. A request is
# some hundred bytes, and rarely up to 8 MiB.
REQUESTS_HELD_BYTES_MAX = 64 * 1024 * 1024
# Produce requests that are read whole on their way, while a topic gets other partitions. More wait.
WHOLE_REQUESTS_BYTES_MAX = 64 * 1024 * 1024
# Of one that others wait for, from its beginning to its end: as long as a producer itself waits.
WHOLE_READING_MS = 30_000
WHOLE_STILL_MS = 5_000  # if nothing of it comes, though it is read
# Answers that are being made or are not yet taken by their clients. With the batch cache (96 MiB),
# the requests, an empty node (80 MiB) and the copies of the answer being encoded, 512 MiB hold.
ANSWERS_HELD_BYTES_MAX = 128 * 1024 * 1024
ANSWER_SHARE = 4  # one answer gets at most the fourth part of the rest ...
ANSWER_BYTES_MIN = 64 * 1024  # ... and always this: a client that reads never waits for others
# Between two bytes of a request that the gateway answers. TCP itself repeats within seconds.
REQUEST_STALLED_MS = 30_000
# For a client that takes no byte of an answer of more than HELD_BYTES_MAX. Kafka's own clients read
# while they ask for more, and give a request up after 30 s.
ANSWER_STALLED_MS = 30_000
ANSWER_RESTING_MS = 1_000  # the same when the limit is reached
# When the limit is reached, until all is taken of what a broker has answered, of which no more is
# read ahead than HELD_BYTES_MAX: a consumer reads nothing while it works on what it has.
FORWARDED_HELD_MS = 30_000
# Of anything: as a broker closes a connection on which nothing moves (connections.max.idle.ms).
ANSWER_IDLE_MS = 600_000
HELD_LOOK_S = 1.0  # between two looks at the clients that take no bytes

# Of one handshake: as Kafka's clients wait for a connection at first (10 s).
HANDSHAKE_S_MAX = 10
HANDSHAKES_MAX = 512  # under way at once, some 100 KiB each; more wait
HANDSHAKES_WAITING_MAX = 4_096  # some 4 KiB each
# Of one that stands still nothing has come in so many looks, three seconds: also a client whose
# machine is busy with a herd of its own goes on within them.
HANDSHAKE_LOOK_S = 0.5
HANDSHAKE_LOOKS = 6
HANDSHAKE_WAIT_LOOKS = 10  # for a place; a client gives up after ten seconds or more
FIRST_WORDS_BYTES_MAX = 16 * 1024  # of a client that waits; a ClientHello is some KB
# Of a socket with TLS: decrypted they are never more, so HELD_BYTES_MAX holds for them, too.
TLS_READ_BYTES_MAX = 128 * 1024

# Logins that the gateway judges itself.
PASSWORDS_HASHED_AT_ONCE = 2  # each is a thread for milliseconds; the event loop keeps its core
LOGIN_FILES_LOOK_S = 1.0  # a change is used after two looks, so within 2 s
JUDGED_AT_ONCE = 16  # sessions, before other work goes on: each may be matched with 1,000 rules
SESSION_END_S = 5.0  # for answers that are under way when a session is over
UPSTREAM_LOGIN_S = 10.0  # TCP, TLS and SASL of an identity together, as the gateway's own
# The same of a session's renewal: it waits for what the client asked before it, such as a JoinGroup
# that upstream holds until the last member has come (max.poll.interval.ms, 5 minutes).
RENEWAL_S = 600.0
# Of the issuer's public keys: an hour's outage of the issuer shuts nobody out.
KEY_SET_S = 300.0  # between two looks
KEY_SET_SOON_S = 10.0  # the same for a key that is not known
KEY_SET_TIMEOUT_S = 5.0
KEY_SET_BYTES_MAX = 1024 * 1024
KEYS_TRIED_MAX = 16  # for a token that does not name its key; some 0.1 ms each
