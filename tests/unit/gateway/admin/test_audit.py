"""The audit: strangers do not fill the log, and push no other line out of memory."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from gateway.admin import audit as module
from gateway.admin.audit import Audit, Subject, shown_first
from gateway.admin.tokens import Caller
from gateway.config.admin import Role
from gateway.core.limits import GROUP_LINE_MS

ANN = Caller("ann", Role.ADMIN, ("*",), keys=True)


class Clock:
    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def test_refusals_of_strangers_are_one_line_in_ten_seconds_with_their_count() -> None:
    clock = Clock()
    audit = Audit(clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(100):
            audit.note(None, "10.0.0.1", "GET /v1/groups", Subject(), "refused: 401")
        audit.note(None, "10.0.0.2", "GET /v1/groups", Subject(group="g" * 999), "refused: 401")
        assert [(line["address"], line["count"]) for line in lines] == [
            *(("10.0.0.1", 1), ("10.0.0.2", 1)),
        ]
        clock.ms += GROUP_LINE_MS
        asyncio.run(audit.write_rest())
    assert [(line["address"], line["count"]) for line in lines[2:]] == [("10.0.0.1", 99)]
    assert len(lines[1]["group"]) == 256
    assert [row.count for row in audit.rows()] == [99, 1, 1], "the latest first"


def test_strangers_push_no_change_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AUDIT_ROWS_MAX", 3)
    audit = Audit(Clock())
    audit.note(ANN, "127.0.0.1", "filters.set", Subject(group="g"), "done")
    for at in range(10):
        audit.note(None, f"10.0.0.{at}", "login", Subject(), "refused: 401")
    assert [row.who for row in audit.rows()] == [None, None, None, "ann"]
    for _ in range(5):
        audit.note(ANN, "127.0.0.1", "filters.set", Subject(group="g"), "done")
    assert sum(row.who == "ann" for row in audit.rows()) == 3
    assert [row.id for row in audit.rows()] == [16, 15, 14, 11, 10, 9], "of one count"


def test_offsets_are_cut() -> None:
    assert shown_first([1, 5, 9]) == "1,5,9"
    assert shown_first(range(25)).endswith("18,19 and 5 more")
