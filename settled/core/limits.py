"""Limits of settled ranges and bits, each with its reason."""

from __future__ import annotations

from typing import Final

# Offsets of the largest span that a policy may ask for. Commit metadata that reaches farther is of
# no window, and rings that do would take all memory there is.
SPAN_OFFSETS_MAX: Final = 1_048_576
