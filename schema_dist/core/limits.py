"""Bounds of schema distribution, each with its reason."""

from __future__ import annotations

REMOVALS_SHARE_MAX = 0.1  # of all that was written: a large registry may lose a subject of many
ABSENT_LOOKS_MIN = 4  # answers in a row; one alone may be a proxy's, or of a registry that starts
ABSENT_MS_MIN = 60_000  # from the first of them to the last: a restart or a fail-over is shorter
LOOK_MS_MAX = 120_000  # an answer that is older says nothing about now
FINGERPRINTS_KEPT = 100_000  # of schemas that two registries hold; 200 bytes each beside the text
