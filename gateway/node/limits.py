"""Bounds of the process. Units are in the names."""

from __future__ import annotations

TRIM_READ_BYTES_MIN = 32 * 1024 * 1024  # read, since memory was last given back to the system
SHARE_SESSIONS_MAX = 2_000  # per virtual broker; Kafka's own group.share.max.share.sessions

# A stock client opens one; what others have is not to be used up from one connection.
CONNECTION_SHARE_SESSIONS_MAX = 100

MISSING_TOPIC_MS = 2_000  # between questions for a topic that members subscribe to and is not there
STOP_S_MAX = 10.0  # to persist and commit at stop; what is not committed is in the store
GC_ALLOCATIONS = 50_000  # between collections of young objects; some 5 MB
