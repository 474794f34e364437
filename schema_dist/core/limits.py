"""Bounds of schema distribution, each with its reason."""

from __future__ import annotations

REMOVALS_UNPROVEN_MAX = (
    100  # versions; more at once, without tombstones, is a source that lost them
)
REMOVALS_UNPROVEN_SHARE_MAX = 0.1  # of all that was written; a small registry may lose a subject
FINGERPRINTS_KEPT = 100_000  # of schemas that two registries hold; 200 bytes each beside the text
