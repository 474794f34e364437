"""Bounds of the REST API and of health probes. Units are in the names."""

from __future__ import annotations

HEALTH_STORE_S_MAX = 1.0  # what a probe waits for Redis; kubelet gives one second by default
ADMIN_BODY_BYTES_MAX = 1024 * 1024  # 16,384 offsets of 19 digits are a third of it
