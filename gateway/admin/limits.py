"""Bounds of the REST API and of health probes. Units are in the names."""

from __future__ import annotations

ADMIN_BODY_BYTES_MAX = 1024 * 1024  # 16,384 offsets of 19 digits are a third of it
