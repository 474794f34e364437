"""The status of a target, as the state topic keeps it and the commands show it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from schema_dist.core.model import Refusal
from schema_dist.limits import SHOWN_MAX
from schema_dist.target_sync import Round


def refusal_row(refusal: Refusal) -> dict[str, Any]:
    return {
        "subject": refusal.subject,
        "version": refusal.version,
        "id": refusal.id,
        "reason": refusal.reason.value,
        "detail": refusal.detail,
    }


def status_of(done: Round, *, last_write_ms: int | None) -> dict[str, Any]:
    """A JSON object with the number of versions in sync, the number of writes left, the refused
    versions with their reasons, and the time of the last write (ms since 1970).
    """
    return {
        "in_sync": done.in_sync,
        "behind": done.behind,
        "refused": dict(sorted(Counter(refusal.reason.value for refusal in done.refusals).items())),
        "refusals": [refusal_row(refusal) for refusal in done.refusals[:SHOWN_MAX]],
        "last_write_ms": last_write_ms,
    }
