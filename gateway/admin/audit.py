"""The audit of REST: one log line for each change and each refusal (logger `keyway.audit`), and the
last ones in memory for `GET /v1/audit`.

Refusals of callers whom the node does not know are one line per address and action in 10 s, with
their count: a stranger must not fill the log. Tokens, keys and values are in no line.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter

import structlog

from gateway.admin.limits import (
    AUDIT_DUE_MS,
    AUDIT_OFFSETS_SHOWN,
    AUDIT_ROWS_MAX,
    AUDIT_TEXT_CHARS_MAX,
)
from gateway.admin.node_rows import AuditRow
from gateway.admin.tokens import Caller
from gateway.core.share.group_lines import GroupLines, Line

log = structlog.get_logger("keyway.audit")

Kept = deque[AuditRow]  # in the order of their ids


@dataclass(slots=True)
class Subject:
    """The thing that a request is about, as far as the request has been read."""

    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: str | None = None
    target: str | None = None
    dry_run: bool = False  # nothing is changed, so nothing is audited


def shown_first(offsets: Sequence[object], separator: str = ",") -> str:
    """Offsets, or moves of positions, as one line has them: the first few, and how many more."""
    first = separator.join(map(str, offsets[:AUDIT_OFFSETS_SHOWN]))
    more = len(offsets) - AUDIT_OFFSETS_SHOWN
    return f"{first} and {more} more" if more > 0 else first


@dataclass(slots=True)
class Audit:
    now_ms: Callable[[], int]
    _rows: Kept = field(default_factory=lambda: deque(maxlen=AUDIT_ROWS_MAX))
    # Of their own, so that no stranger pushes the others out.
    _stranger_rows: Kept = field(default_factory=lambda: deque(maxlen=AUDIT_ROWS_MAX))
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    _strangers: GroupLines = field(default_factory=GroupLines)

    def note(
        self, caller: Caller | None, address: str, action: str, subject: Subject, outcome: str
    ) -> None:
        """`caller` None: nobody the node knows."""
        if caller is None:
            example = {"outcome": outcome, "group": _cut(subject.group)}
            line = self._strangers.note(address, action, 1, example, self.now_ms())
            self._write_strangers([] if line is None else [line])
            return
        self._write(
            self._rows,
            AuditRow(
                id=next(self._ids),
                at_ms=self.now_ms(),
                who=caller.name,
                role=caller.role.value,
                address=address,
                action=action,
                group=_cut(subject.group),
                topic=_cut(subject.topic),
                partition=subject.partition,
                offsets=subject.offsets,
                target=_cut(subject.target),
                outcome=outcome,
            ),
        )

    def rows(self) -> list[AuditRow]:
        """The latest first."""
        return sorted([*self._stranger_rows, *self._rows], key=attrgetter("id"), reverse=True)

    async def write_due_forever(self) -> None:
        """The counts of strangers' refusals that are in no line yet."""
        while True:
            await asyncio.sleep(AUDIT_DUE_MS / 1_000)
            self._write_strangers(self._strangers.due(self.now_ms()))

    async def write_rest(self) -> None:
        """Writes what is left, when the node stops."""
        self._write_strangers(self._strangers.rest())

    def _write_strangers(self, lines: Iterable[Line]) -> None:
        for line in lines:
            group = line.example.get("group")
            self._write(
                self._stranger_rows,
                AuditRow(
                    id=next(self._ids),
                    at_ms=self.now_ms(),
                    who=None,
                    role=None,
                    address=line.group,
                    action=line.kind,
                    group=None if group is None else str(group),
                    outcome=str(line.example["outcome"]),
                    count=line.count,
                ),
            )

    def _write(self, rows: Kept, row: AuditRow) -> None:
        rows.append(row)
        log.info("audit", **row.model_dump(exclude={"id", "at_ms"}))


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:AUDIT_TEXT_CHARS_MAX]
