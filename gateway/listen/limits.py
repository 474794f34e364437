"""Bounds of client connections and of their ACL verdicts. Units are in the names."""

from __future__ import annotations

# Kept per connection and direction: by the connection state and by the socket buffer together.
HELD_BYTES_MAX = 256 * 1024

# uvloop reads at most 256,000 bytes at once. Reading stops when either of the two buffers of a
# direction exceeds this, so one more read can never pass HELD_BYTES_MAX.
PAUSE_ABOVE_BYTES = 2 * 1024

# Kafka works on one request at a time per connection; ask_upstream may ask a few at once.
INJECTED_REQUESTS_MAX = 64

CONNECT_TIMEOUT_S = 5.0  # to one upstream address; TCP's own first retry comes after 1 s

# A client whose connection is closed right after it was accepted comes back at once (a librdkafka
# share consumer 35 times a second), one that is refused backs off. So an upstream that is away is
# asked again for a while before the client is let go.
UPSTREAM_PATIENCE_S = 1.0
UPSTREAM_AGAIN_S = 0.25
FIRST_REQUEST_S = 60.0  # a connection without one has no upstream to close it when it idles
CLOSE_FLUSH_S = 5.0  # received bytes may still go out after the other side has closed
ABORT_S = 1.0  # for the event loop to see that aborted connections are gone
LISTEN_BACKLOG_CONNECTIONS = 512
AUTHORISATION_MS_MAX = 30_000  # an upstream ACL verdict is trusted this long per connection
AUTHORISATIONS_MAX = 4_096  # remembered per connection; questions beyond it go upstream
DESCRIPTORS_PER_CLIENT = 2  # its socket and the one upstream
# For listeners, Redis, the node's own upstream connections, files, and for REST, which has to tell.
DESCRIPTORS_RESERVED = 160
ADMIT_AGAIN_SHARE = 0.95  # of the clients there may be: fewer end an episode of refusals
