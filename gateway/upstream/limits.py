"""Bounds of the gateway's own requests to the upstream cluster. Units are in the names."""

from __future__ import annotations

ANSWER_BYTES_MAX = 128 * 1024 * 1024  # more than any answer to the gateway's own requests
# A full answer to a fetch is 8 MiB. More is one large batch, or the metadata of 300,000 partitions.
LONG_ANSWER_BYTES = 16 * 1024 * 1024
SETTLING_PAUSE_MS = 100  # between attempts at something the cluster is about to settle
REFRESH_REQUESTED_PAUSE_MS = 50  # requests for a fresh view are gathered this long

# Of the session lifetime the broker grants (KIP-368); Java uses 85 to 95 %.
REAUTHENTICATE_AT = 0.85

# Of SCRAM: a thread for milliseconds each; the event loop keeps its core.
SCRAM_KEYS_AT_ONCE = 2
SCRAM_KEYS_MAX = 10_000  # some hundred bytes each; IDENTITIES_MAX, so that all of them have theirs

PING_MS = 2_000  # between two questions whether a broker is still there
PING_ANSWER_MS_MAX = 3_000  # a broker that takes longer for an empty Metadata serves nobody
PING_LANE = -1  # beside the control lane and the lanes of fetches

# Names in one Metadata request: 1.3 MB at 249 characters each; a broker takes 100 MB at most.
METADATA_TOPICS_MAX = 5_000
# Members may name topics that do not exist. 100 groups of 1,000 each.
WATCHED_TOPICS_MAX = 100_000
