"""Bounds of the REST API and of health probes. Units are in the names."""

from __future__ import annotations

ADMIN_BODY_BYTES_MAX = 1024 * 1024  # 16,384 offsets of 19 digits are a third of it
PAGE_GROUPS_MAX = 1_000  # groups of one page: some 200 KB
GROUPS_AT_ONCE = 50  # rows of a list that are made before other work goes on: under a millisecond
