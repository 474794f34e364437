"""Brings one target to the contents of the source, in rounds of plans. Each write is noted, made
and read back.

A round can end anywhere. The next one plans the rest, from the target as it is read anew or as it
is known.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from keyway.clusters.core.subjects import SubjectTranslation
from schema_dist.confirming import Confirming
from schema_dist.core.compare import fingerprint
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired, Follows, slices
from schema_dist.core.ledger import (
    Entry,
    Ledger,
    SettingEntry,
    entries_after,
    entries_before,
)
from schema_dist.core.limits import ABSENT_LOOKS_MIN, ABSENT_MS_MIN, SLICE_PLACES
from schema_dist.core.model import (
    Reason,
    Refusal,
    Register,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SubjectVersion,
    Write,
)
from schema_dist.core.plan import Plan, Removals, takes_back
from schema_dist.core.standing import Standing
from schema_dist.limits import NOTED_AT_ONCE, PLANS_MAX, PROBE_SUBJECT, WRITES_AT_ONCE
from schema_dist.rest_client import nothing_to_ask


class TargetRegistry(Protocol):
    """A registry that is written: over REST or by its log."""

    contexts: bool

    @property
    def contents(self) -> Contents: ...
    async def read(self, settings_of: Iterable[str]) -> Contents: ...
    def switched_by(self, batch: Sequence[Write]) -> list[str]: ...
    async def apply(self, batch: Sequence[Write]) -> list[Refusal | None]: ...
    async def probe(self, sample: SchemaVersion) -> str | None: ...
    async def clean_up_probe(self) -> None: ...


class LedgerStore(Protocol):
    """The place of the ledger; an entry is durable when `note` returns. Without entries, `note`
    only asks whether this process may still write. Raises AwayError if not.
    """

    async def load(self) -> Ledger: ...
    async def note(self, entries: Iterable[Entry]) -> None: ...


@dataclass(frozen=True, slots=True)
class Allowed:
    """What distribution may do to a target. `confirming` asks the source by name for versions that
    it lacks; `still_ours` returns once it is sure that no other process distributes.
    """

    confirming: Confirming
    hard_deletes: bool = False
    removals_at_once_max: int = 100
    still_ours: Callable[[], Awaitable[None]] = nothing_to_ask


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round. `behind`: the remaining writes, also those that wait for a proof;
    `refusals`: versions that are not distributed, with the reasons; `in_sync`: the number of
    versions in their desired state.
    """

    in_sync: int
    behind: int
    refusals: tuple[Refusal, ...]
    writes: Counter[str] = field(default_factory=Counter)


class TargetSync:
    """Brings one target up to date. Only one may run for a target: the lease sees to that."""

    def __init__(
        self,
        target: TargetRegistry,
        store: LedgerStore,
        names: SubjectTranslation,
        follows: Follows,
        allowed: Allowed,
        progress: Callable[[int], None] = lambda _behind: None,
    ) -> None:
        self._target = target
        self._store = store
        self._names = names
        self._follows = follows
        self._allowed = allowed
        self._progress = progress
        self._ledger: Ledger | None = None
        self._wanted: Desired | None = None
        self._standing: Standing | None = None
        self._stale = True
        self._probed: str | None = None  # the fault that the probe found; empty: none
        # Settings that would be taken back: since when, and the source's reads by then.
        self._unset: dict[Write, tuple[int, int]] = {}

    def read_anew(self) -> None:
        """Called before a round if somebody else may have written to the target. Then everything is
        compared, and not only what changed.
        """
        self._stale = True
        self._probed = None

    async def plan(self, source: Contents) -> Plan:
        """The first writes of a round. Writes nothing. Raises as `round`."""
        await self._read(source)
        return await self._plan(source)

    async def probe(self, plan: Plan) -> str | None:
        """The registry's fault with explicit ids; None if it has none, or if there is nothing to
        register for the trial.
        """
        sample = next(
            (write.wanted for write in _writes(plan) if isinstance(write, Register)), None
        )
        if sample is None:
            return None
        await self._note([SettingEntry("mode", PROBE_SUBJECT, ours=True)])
        return await self._target.probe(sample)

    async def round(self, source: Contents) -> Round:
        """Writes all that can be written now. Raises AwayError, RefusedError (for reading),
        LogError: then the next round reads the target anew.
        """
        try:
            return await self._round(source)
        except BaseException:
            self._stale = True
            self._ledger = None
            raise

    async def _round(self, source: Contents) -> Round:
        if self._stale:
            await self._read(source)
            if self._target.contents.of(PROBE_SUBJECT):
                await self._target.clean_up_probe()
            self._stale = False
        written: Counter[str] = Counter()
        refused: dict[SubjectVersion | Write, Refusal] = {}
        for _ in range(PLANS_MAX):
            plan = self._lasting(await self._plan(source), source)
            await self._note(plan.adopted)
            registers = any(isinstance(write, Register) for write in _writes(plan))
            if self._probed is None and registers:
                self._probed = await self.probe(plan) or ""
            made = await self._perform(plan, refused, written)
            if not made:
                break
        refusals = (*plan.refusals, *refused.values())
        behind = plan.writes + len(plan.unconfirmed) + len(self._unset)
        return Round(plan.in_sync, behind, refusals, written)

    async def _loaded(self) -> Ledger:
        if self._ledger is None:
            self._ledger = await self._store.load()
        return self._ledger

    async def _read(self, source: Contents) -> None:
        """Reads the target, and forgets all that was compared before."""
        self._wanted = self._standing = None
        wanted, ledger = await self._desired(source), await self._loaded()
        settings = {*wanted.compatibility, *wanted.modes, *ledger.compatibility, *ledger.modes}
        settings.discard("")
        await self._target.read(sorted(settings))

    async def _desired(self, source: Contents) -> Desired:
        """The desired contents, up to date with the source."""
        while True:
            wanted = self._wanted
            if wanted is None or wanted.source is not source or wanted.is_behind is None:
                wanted = self._wanted = Desired(source, self._names, self._follows)
            await _in_slices(wanted.catch_up())
            if wanted.is_behind is False:
                return wanted

    async def _stands(self, source: Contents) -> Standing:
        """Where the target stands, up to date with the source, the target and the ledger."""
        while True:
            wanted, ledger = await self._desired(source), await self._loaded()
            standing, target = self._standing, self._target.contents
            if standing is None or not standing.follows(wanted, target, ledger):
                hard = self._allowed.hard_deletes
                standing = self._standing = Standing(wanted, target, ledger, hard=hard)
            await _in_slices(standing.catch_up())
            if standing.is_behind is False:
                return standing

    async def _plan(self, source: Contents) -> Plan:
        standing = await self._stands(source)
        confirmed = self._allowed.confirming.confirmed()
        removals = Removals(
            recorded=source.recorded,
            confirmed=None
            if confirmed is None
            else {there: confirmed[place] for there, place in self._there(confirmed)},
            at_once_max=self._allowed.removals_at_once_max,
            hard=self._allowed.hard_deletes,
        )
        make = partial(standing.plan, contexts=self._target.contexts, removals=removals)
        # A first distribution plans everything at once. Meanwhile the source may be read on.
        is_long = len(standing.open) > SLICE_PLACES
        plan = await asyncio.to_thread(make) if is_long else make()
        back = (
            (self._names.back(version.subject), version.version) for version in plan.unconfirmed
        )
        asked = [(subject, version) for subject, version in back if isinstance(subject, str)]
        self._allowed.confirming.ask_for(self, asked)
        return plan

    def _lasting(self, plan: Plan, source: Contents) -> Plan:
        """The plan without settings that are taken back because the source does not show them.
        Unless its log tells it, they have to stay away as long, and in as many looks, as versions.
        """
        now_ms, before, self._unset = _now_ms(), self._unset, {}
        if source.recorded:
            return plan
        for write in _writes(plan):
            if not takes_back(write, self._target.contents):
                continue
            since_ms, reads = before.get(write, (now_ms, source.reads))
            looks = source.reads - reads
            if now_ms - since_ms < ABSENT_MS_MIN or looks < ABSENT_LOOKS_MIN:
                self._unset[write] = (since_ms, reads)
        kept = (tuple(write for write in wave if write not in self._unset) for wave in plan.waves)
        return replace(plan, waves=tuple(kept))

    def _there(
        self, places: Iterable[SubjectVersion]
    ) -> Iterable[tuple[SubjectVersion, SubjectVersion]]:
        """Pairs of places: the target's, and the source's that it comes from."""
        for subject, version in places:
            there = self._names.there(subject)
            if isinstance(there, str):
                yield (there, version), (subject, version)

    async def _note(self, entries: Iterable[Entry]) -> None:
        assert self._ledger is not None
        # In parts: those of an adopted registry at once would hold the event loop for seconds.
        for part in slices(entries, NOTED_AT_ONCE):
            new = self._ledger.missing(part)
            if new:
                await self._store.note(new)
                self._ledger.apply(new)

    async def _perform(
        self,
        plan: Plan,
        refused: dict[SubjectVersion | Write, Refusal],
        written: Counter[str],
    ) -> int:
        """Makes the plan's writes, wave by wave. Returns how many succeeded."""
        made, left = 0, plan.writes
        for wave in plan.waves:
            ready = [write for write in wave if self._may(write, refused)]
            for batch in slices(ready, WRITES_AT_ONCE):
                self._progress(left)
                for write, refusal in zip(batch, await self._write(batch), strict=True):
                    left -= 1
                    if refusal is None:
                        made += 1
                        written[type(write).__name__] += 1
                    else:
                        refused[_key(write)] = refusal
        self._progress(left)
        return made

    def _may(self, write: Write, refused: dict[SubjectVersion | Write, Refusal]) -> bool:
        """Whether nothing that the write needs was refused; if something was, it notes why."""
        if _key(write) in refused:
            return False
        if isinstance(write, Register):
            wanted = write.wanted
            if self._probed:
                refused[wanted.place] = Refusal.of(wanted, Reason.ID_IGNORED, self._probed)
                return False
            lacking = next((needed for needed in write.needs if needed in refused), None)
            if lacking is not None:
                detail = f"it refers to {lacking[0]} version {lacking[1]}, which is refused"
                refused[wanted.place] = Refusal.of(wanted, Reason.REFERENCE, detail)
                return False
        return True

    async def _write(self, batch: Sequence[Write]) -> list[Refusal | None]:
        assert self._ledger is not None
        ledger = self._ledger
        before: list[Entry] = [
            SettingEntry("mode", subject, ours=True) for subject in self._target.switched_by(batch)
        ]
        for write in batch:
            meaning = source = None
            if isinstance(write, Register):
                assert self._wanted is not None
                meaning = fingerprint(write.wanted.schema)
                source = self._wanted.source_of(write.wanted.subject)
            before += entries_before(write, meaning, source)
        await self._allowed.still_ours()
        new = ledger.missing(before)
        await self._store.note(new)  # also if there is nothing new: Kafka refuses a former holder
        ledger.apply(new)
        await self._allowed.still_ours()
        refusals = await self._target.apply(batch)
        done = [write for write, refusal in zip(batch, refusals, strict=True) if refusal is None]
        await self._note(entry for write in done for entry in entries_after(write))
        return refusals


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)


async def _in_slices(work: Iterator[None]) -> None:
    for _ in work:
        await asyncio.sleep(0)  # the lease and the other targets have their turn


def _key(write: Write) -> SubjectVersion | Write:
    return write if isinstance(write, SetCompatibility | SetMode) else write.place


def _writes(plan: Plan) -> Iterable[Write]:
    return (write for wave in plan.waves for write in wave)
