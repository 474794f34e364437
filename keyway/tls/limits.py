"""Limits of the certificates of servers."""

from __future__ import annotations

CERTIFICATES_LOOK_S = 5.0  # from one look for changed files to the next
CERTIFICATE_WARNING_S = 14 * 24 * 3600  # before its end /health warns of a certificate
