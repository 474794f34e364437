"""The groups of the gateways that tests start: a policy each, by the prefix of the name."""

from __future__ import annotations

from tests.rig.gateway_process import Settings

DEAD_LETTERS = "tests-dead-letters"
QUICK_RETRY: Settings = {
    "auto_offset_reset": "earliest",
    "backoff_base_ms": 100,
    "backoff_max_ms": 400,
}

# The first match wins. Tests choose a policy by the prefix of their group's name.
GROUPS: list[Settings] = [
    {
        "match": "drop-*",
        **QUICK_RETRY,
        "rejected": "drop",
        "exhausted": "drop",
        "deliveries_max": 3,
    },
    {
        "match": "dlq-*",
        **QUICK_RETRY,
        "rejected": "dead_letter",
        "exhausted": "dead_letter",
        "deliveries_max": 3,
        "dead_letter_topic": DEAD_LETTERS,
    },
    {
        "match": "block-*",
        **QUICK_RETRY,
        "rejected": "block",
        "exhausted": "block",
        "deliveries_max": 3,
    },
    # Each kind of poison record has a policy of its own.
    {
        "match": "split-*",
        **QUICK_RETRY,
        "rejected": "dead_letter",
        "exhausted": "block",
        "deliveries_max": 2,
        "dead_letter_topic": DEAD_LETTERS,
    },
    {"match": "lock-*", **QUICK_RETRY, "lock_duration_ms": 1_500, "deliveries_max": 10},
    {"match": "hung-*", "auto_offset_reset": "earliest", "lock_duration_ms": 3_000},
    # Nobody gets a record of another member because time has passed.
    {
        "match": "patient-*",
        **QUICK_RETRY,
        "lock_duration_ms": 600_000,
        "session_timeout_ms": 600_000,
    },
    {"match": "nack-*", "auto_offset_reset": "earliest", "backoff_base_ms": 4_000},
    {
        "match": "cap-*",
        **QUICK_RETRY,
        "in_flight_per_member_max": 10,
        "lock_duration_ms": 600_000,
    },
    {"match": "span-*", **QUICK_RETRY, "span_max": 4_096, "held_max": 0},
    {"match": "prefetch-*", **QUICK_RETRY, "prefetch_per_key": 3},
    {
        "match": "filter-*",
        **QUICK_RETRY,
        "filters": [
            {"client_id": "eu-*", "keys": ["eu-*"]},
            {"client_id": "us-*", "keys": ["us-?"]},
        ],
    },
    {"match": "latest-*", "auto_offset_reset": "latest"},
    {"match": "*", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 1_000},
]
