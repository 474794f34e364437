"""Kafka's rules for topic names (org.apache.kafka.common.internals.Topic)."""

from __future__ import annotations

import re

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def is_topic_name(text: str) -> bool:
    """May a topic have this name? Else no broker needs to be asked about it."""
    return _LEGAL.match(text) is not None and text not in (".", "..")
