"""Every bound of the gateway, with its reason; the unit is in the name."""

from __future__ import annotations

# --- frames and connections (gateway/core/session.py, gateway/connection.py)

# Kafka's socket.request.max.bytes, which is also what Kroxylicious and kafka-proxy take.
FRAME_BYTES_MAX = 100 * 1024 * 1024

# Kept per connection and direction, session and socket buffer together (DESIGN §3).
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
CLOSE_FLUSH_S = 5.0  # what was received may still go out after the other side has closed
LISTEN_BACKLOG_CONNECTIONS = 512
