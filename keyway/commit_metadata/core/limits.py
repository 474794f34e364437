"""Limits of settled ranges and bits, each with its reason."""

from __future__ import annotations

from typing import Final

# Offsets of the largest span that a policy may ask for: larger rings would take all memory.
SPAN_OFFSETS_MAX: Final = 1_048_576

# No log has so many offsets; commit metadata that says so is of no window.
OFFSET_MAX: Final = 1 << 62
