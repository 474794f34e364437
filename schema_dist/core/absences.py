"""Versions that the source no longer shows: a list that lacks them proves nothing.

Each is asked for by name, again and again, and its absence counts once enough answers in a row said
the same over a while. Another answer, or none, begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from schema_dist.core.limits import ABSENT_LOOKS_MIN, ABSENT_MS_MIN, LOOK_MS_MAX
from schema_dist.core.model import SubjectVersion


class Presence(Enum):
    """What a registry says about a version that is asked for by name."""

    LIVE = "live"
    DELETED = "soft-deleted"
    GONE = "gone"


@dataclass(slots=True)
class _Run:
    """Several answers in a row that said the same."""

    said: Presence
    since_ms: int
    last_ms: int
    looks: int = 1


@dataclass(slots=True)
class Absences:
    """The places that are asked for, and their latest answers."""

    _runs: dict[SubjectVersion, _Run | None] = field(default_factory=dict)  # None: no answer yet

    def ask_for(self, places: Iterable[SubjectVersion]) -> None:
        """From now on these places are asked for, and no others. The answers about others are
        forgotten.
        """
        self._runs = {place: self._runs.get(place) for place in places}

    @property
    def asked_for(self) -> tuple[SubjectVersion, ...]:
        return tuple(self._runs)

    def answered(self, place: SubjectVersion, said: Presence | None, now_ms: int) -> None:
        """`said`: None if there was no usable answer. A place that nobody asks for is ignored."""
        if place not in self._runs:
            return
        run = self._runs[place]
        if said is None:
            self._runs[place] = None
        elif run is None or run.said is not said or now_ms - run.last_ms > LOOK_MS_MAX:
            self._runs[place] = _Run(said, now_ms, now_ms)
        else:
            run.last_ms = now_ms
            run.looks += 1

    def confirmed(self, now_ms: int) -> Mapping[SubjectVersion, Presence]:
        """The places that are DELETED or GONE beyond doubt."""
        return {
            place: run.said
            for place, run in self._runs.items()
            if run is not None
            and run.said is not Presence.LIVE
            and run.looks >= ABSENT_LOOKS_MIN
            and run.last_ms - run.since_ms >= ABSENT_MS_MIN
            and now_ms - run.last_ms <= LOOK_MS_MAX
        }
