"""The latest state of the topic `_keyway-offsets` on one cluster: where each group stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from offsets.core.entries import (
    APPLIED,
    BEAT,
    BOTH,
    CUT,
    ENTRY,
    ROW,
    VERSION,
    Applied,
    Entry,
    GroupPartition,
    MalformedEntry,
    decode_applied,
    decode_cut,
    decode_entry,
    encode_applied,
    encode_cut,
    encode_entry,
    key_of,
    read_body,
    read_key,
)
from offsets.core.model import Cut
from offsets.core.switches import SWITCH, SwitchReport, decode_report, encode_report


@dataclass(slots=True)
class TopicState:
    """The contents of a state topic, read from its start. `beat` is the last sign of life of the
    cluster's service: when it came, and what keeps the service from its work. `changed` has what
    came since the last call of `news`.
    """

    entries: dict[tuple[GroupPartition, str], Entry] = field(default_factory=dict)
    applied: dict[GroupPartition, Applied] = field(default_factory=dict)
    rows: dict[tuple[GroupPartition, str], dict[str, Any]] = field(default_factory=dict)
    both: set[str] = field(default_factory=set)
    cuts: dict[tuple[str, int], Cut] = field(default_factory=dict)  # by topic and partition
    malformed: int = 0
    beat: tuple[int, str] | None = field(default=None, compare=False)
    switches: dict[tuple[GroupPartition, str], SwitchReport] = field(default_factory=dict)
    changed: dict[tuple[GroupPartition, str], Entry | SwitchReport] = field(
        default_factory=dict, compare=False
    )
    _sources: dict[GroupPartition, set[str]] = field(default_factory=dict, compare=False)

    @property
    def places(self) -> Iterable[GroupPartition]:
        """The places of all entries, each once."""
        return self._sources.keys()

    def read(self, key: bytes | None, value: bytes | None) -> Entry | None:
        """Takes in one record. Returns its entry if that was not known. A malformed record is
        counted, and changes nothing.
        """
        try:
            kind, place, source = read_key(key)
            if kind == ENTRY:
                return self._entry(place, source, value)
            if kind == APPLIED:
                self._applied(place, value)
            elif kind == ROW:
                self._row(place, source, value)
            elif kind == SWITCH:
                self._switch(place, source, value)
            elif kind == BEAT:
                self._beat(value)
            elif kind == CUT:
                self._cut(place, value)
            elif kind == BOTH:
                (self.both.discard if value is None else self.both.add)(place[0])
        except MalformedEntry:
            self.malformed += 1
        return None

    def _entry(self, place: GroupPartition, source: str, value: bytes | None) -> Entry | None:
        if value is None:
            self.entries.pop((place, source), None)
            self.changed.pop((place, source), None)
            sources = self._sources.get(place, set())
            sources.discard(source)
            if not sources:
                self._sources.pop(place, None)
            return None
        entry = decode_entry(place, source, value)
        if self.entries.get((place, source)) == entry:
            return None
        self.entries[place, source] = self.changed[place, source] = entry
        self._sources.setdefault(place, set()).add(source)
        return entry

    def _applied(self, place: GroupPartition, value: bytes | None) -> None:
        if value is None:
            self.applied.pop(place, None)
        else:
            self.applied[place] = decode_applied(value)

    def _row(self, place: GroupPartition, source: str, value: bytes | None) -> None:
        if value is None:
            self.rows.pop((place, source), None)
        else:
            self.rows[place, source] = read_body(value)

    def _beat(self, value: bytes | None) -> None:
        body = {} if value is None else read_body(value)
        at_ms, problem = body.get("at_ms"), body.get("problem")
        if isinstance(at_ms, int) and isinstance(problem, str):
            self.beat = at_ms, problem

    def _cut(self, place: GroupPartition, value: bytes | None) -> None:
        if value is None:
            self.cuts.pop(place[1:], None)
        else:
            self.cuts[place[1:]] = decode_cut(value)

    def _switch(self, place: GroupPartition, source: str, value: bytes | None) -> None:
        if value is None:
            self.switches.pop((place, source), None)
            return
        told = decode_report(place, source, value)
        if self.switches.get((place, source)) != told:
            self.switches[place, source] = self.changed[place, source] = told

    def news(self) -> list[Entry | SwitchReport]:
        """All that travels and has changed since the last call."""
        found = list(self.changed.values())
        self.changed.clear()
        return found

    def travelling(self) -> list[Entry | SwitchReport]:
        """All that travels along the tree."""
        return [*self.entries.values(), *self.switches.values()]

    def records(self) -> list[tuple[bytes, bytes]]:
        """All of it, as records of the topic."""
        rows = ((key, json.dumps(row, separators=(",", ":"))) for key, row in self.rows.items())
        both = json.dumps({"version": VERSION}, separators=(",", ":")).encode()
        return [
            *((key_of(ENTRY, *key), encode_entry(entry)) for key, entry in self.entries.items()),
            *((key_of(APPLIED, at), encode_applied(done)) for at, done in self.applied.items()),
            *((key_of(ROW, *key), text.encode()) for key, text in rows),
            *((key_of(SWITCH, *key), encode_report(told)) for key, told in self.switches.items()),
            *((key_of(BOTH, (group, "", 0)), both) for group in sorted(self.both)),
            *((key_of(CUT, ("", *at)), encode_cut(cut)) for at, cut in self.cuts.items()),
        ]

    def newest(self, place: GroupPartition, *, besides: str) -> Entry | None:
        """The latest commit of a group anywhere but on `besides`."""
        sources = self._sources.get(place, set()) - {besides}
        found = [entry for source in sources if not (entry := self.entries[place, source]).deleted]
        return max(found, key=lambda entry: (entry.committed_ms, entry.source), default=None)

    def expired(self, before_ms: int) -> list[bytes]:
        """The keys to delete: of everything about commits that were deleted before `before_ms`, and
        of groups that worked on both clusters and have no commits any more.
        """
        gone = {
            key
            for key, entry in self.entries.items()
            if entry.deleted and entry.committed_ms < before_ms
        }
        alive = {place for place, source in self.entries.keys() - gone}
        return [
            *(key_of(ENTRY, place, source) for place, source in gone),
            *(
                key_of(ROW, place, source)
                for place, source in self.rows
                if (place, source) in gone or (place, source) not in self.entries
            ),
            *(key_of(APPLIED, place) for place in self.applied if place not in alive),
            *(
                key_of(BOTH, (group, "", 0))
                for group in sorted(self.both - {place[0] for place in alive})
            ),
        ]
