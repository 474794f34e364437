"""Asks by name for the versions that the source no longer shows, again and again, until their
absence is sure or they are back (core/absences.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from schema_dist.core.absences import Absences, Presence
from schema_dist.core.model import SubjectVersion
from schema_dist.errors import AwayError, RefusedError
from schema_dist.limits import LOOK_S
from schema_dist.tasks import together

Ask = Callable[[SubjectVersion], Awaitable[Presence]]  # raises AwayError, RefusedError
_LOG = structlog.get_logger("keyway.schemas")


class Confirming:
    """One for each source. Each target names the places that it misses, and all are asked for
    together.
    """

    def __init__(self, ask: Ask | None) -> None:
        """`ask`: None if the source has only a log, which cannot be asked by name."""
        self._ask = ask
        self._wanted: dict[object, tuple[SubjectVersion, ...]] = {}
        self._absences = Absences()
        self._any = asyncio.Event()

    def ask_for(self, target: object, places: Iterable[SubjectVersion]) -> None:
        """`places`: everything that `target` misses now."""
        self._wanted[target] = tuple(places)
        every = dict.fromkeys(place for of in self._wanted.values() for place in of)
        new = len(every.keys() - set(self._absences.asked_for))
        if new and self._ask is not None:
            _LOG.warning("absent_versions_asked_by_name", count=new)
        self._absences.ask_for(every)
        if every:
            self._any.set()
        else:
            self._any.clear()

    def confirmed(self) -> Mapping[SubjectVersion, Presence] | None:
        """The absences that are sure by now; None if nobody can be asked."""
        return None if self._ask is None else self._absences.confirmed(_now_ms())

    async def run(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Runs until it is cancelled. Calls `changed` when more is confirmed than before."""
        while True:
            await self._any.wait()
            before = self.confirmed()
            if self._ask is not None:
                await self._look(self._ask)
            if self.confirmed() != before:
                await changed()
            await asyncio.sleep(LOOK_S)

    async def _look(self, ask: Ask) -> None:
        places, failures = self._absences.asked_for, list[str]()

        async def one(place: SubjectVersion) -> Presence | None:
            try:
                return await ask(place)
            except (AwayError, RefusedError) as error:
                failures.append(str(error))
                return None

        answers = await together(map(one, places))
        for place, said in zip(places, answers, strict=True):
            self._absences.answered(place, said, _now_ms())
        if failures:
            _LOG.warning("absent_versions_unanswered", count=len(failures), error=failures[0])
        live = [place for place, said in zip(places, answers, strict=True) if said is Presence.LIVE]
        if live:
            _LOG.warning("listed_versions_incomplete", count=len(live), one=live[0])


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
