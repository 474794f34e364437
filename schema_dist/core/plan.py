"""From the present contents of a target to the wanted ones: ordered writes that can be repeated.

The plan is made from contents, not from events. So a process that was killed after any write makes
the rest of the same plan when it starts again, and a second run has nothing to do.

- A version that is there under another id or with another meaning is refused, and so is an id that
  another schema owns: both before anything is written.
- A version that is gone or soft-deleted at the source is taken away if Keyway wrote it (the ledger
  says so) and the removal is proven: by a record of the source's log, or because the version stayed
  away when it was asked for by name. Of the latter only few may go at once: a source that lost its
  contents must not empty targets. Hard deletes need leave of their own.
- Writes stand in *waves*: a write stands behind the waves of all that it needs, and all writes of
  one wave may run at once. References come before their users, and go after them. A wave is sorted
  by subject and version.
"""

# Long: one plan, whose steps share what is wanted, what is there and what was written.
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import assert_never

from schema_dist.core.absences import Presence
from schema_dist.core.compare import Fingerprint, SchemaTextError, fingerprint
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.ledger import Entry, Ledger, SettingEntry, VersionEntry
from schema_dist.core.limits import FEWER, REMOVALS_SHARE_MAX
from schema_dist.core.model import (
    IMPORT,
    HardDelete,
    Reason,
    Refusal,
    Register,
    SchemaId,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SoftDelete,
    SubjectVersion,
    Write,
    context_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Which removals are proven, and which are allowed. Places are the target's.

    `recorded`: the source's soft deletes are records of its log. `confirmed`: places that stayed
    away when they were asked for by name; None if nobody can be asked. `at_once_max`: how many
    versions may go at once without a record. `hard`: hard deletes are made, too.
    """

    recorded: bool = True
    confirmed: Mapping[SubjectVersion, Presence] | None = None
    at_once_max: int = 100
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`waves`: the writes. `adopted`: the entries that the ledger lacks, or should no longer have.
    `in_sync`: the number of versions that need nothing. `unconfirmed`: the versions that are taken
    away once their absence is confirmed.
    """

    waves: tuple[tuple[Write, ...], ...]
    refusals: tuple[Refusal, ...]
    adopted: tuple[Entry, ...]
    in_sync: int
    unconfirmed: tuple[SchemaVersion, ...] = ()

    @property
    def writes(self) -> int:
        return sum(map(len, self.waves))


def make_plan(
    wanted: Desired,
    target: Contents,
    ledger: Ledger,
    *,
    places: Collection[SubjectVersion],
    contexts: bool,
    removals: Removals,
    in_sync: int = 0,
) -> Plan:
    """The writes that turn `target` into `wanted`.

    `places`: the places that are not in sync (core/standing.py); `in_sync`: how many other places
    there are. `contexts`: the target's registry keeps the ids of each context apart.
    """
    planning = _Planning(
        wanted, target, ledger, sorted(places), contexts, removals, in_sync=in_sync
    )
    planning.remove()
    planning.register()
    planning.report_foreign()
    planning.settle()
    return Plan(
        waves=_waves(planning.writes, target),
        refusals=(*wanted.refusals, *planning.refusals),
        adopted=tuple(planning.adopted),
        in_sync=planning.in_sync,
        unconfirmed=tuple(planning.unconfirmed),
    )


_Owners = dict[tuple[str, SchemaId], tuple[Fingerprint | None, SchemaVersion]]


@dataclass(slots=True)
class _Planning:
    wanted: Desired
    target: Contents
    ledger: Ledger
    places: list[SubjectVersion]
    contexts: bool
    removals: Removals
    writes: list[Write] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    adopted: list[Entry] = field(default_factory=list)
    unconfirmed: list[SchemaVersion] = field(default_factory=list)
    withheld: set[SubjectVersion] = field(default_factory=set)  # stay as they are, for now
    renamed: bool = False  # some of these came from a subject of another name
    in_sync: int = 0
    gone: set[SubjectVersion] = field(default_factory=set)  # removed by this plan
    going: frozenset[SubjectVersion] = frozenset()  # of these, those that the source lost
    later: set[SubjectVersion] = field(default_factory=set)  # registered by the next plan
    replaced_too_many: int = 0  # so many would be; 0: few enough
    highest: dict[str, SchemaId] = field(default_factory=dict)  # of the source, by context
    owners: _Owners = field(default_factory=dict)  # by context and id

    # ------------------------------------------------------------------------------------- removals

    def remove(self) -> None:
        """Versions of ours that the source no longer has, or has soft-deleted."""
        lost: list[SchemaVersion] = []
        for place in self.places:
            if place not in self.ledger.versions or place in self.wanted.at_source:
                continue
            found = self.target.get(place)
            if found is None:
                self.adopted.append(VersionEntry(place, None))
            elif not self._is_ours(found):
                self.refuse(found, Reason.NOT_OURS, "it was changed on the target")
            elif self.removals.hard or not found.deleted:
                lost.append(found)
        self._withhold_renamed(lost)
        known = self.wanted.tombstones | self.withheld
        unproven = [(version, Presence.GONE) for version in lost if version.place not in known]
        if not self.removals.recorded:
            unproven += [(version, Presence.DELETED) for version in self._soft_deleted()]
        self._withhold(unproven)
        for found in lost:
            if found.place not in self.withheld:
                self.take_away(found)

    def _withhold_renamed(self, lost: Sequence[SchemaVersion]) -> None:
        """Versions of ours that came from another subject than the one that the source would be
        asked for now.
        """
        for found in lost:
            source = self.ledger.sources.get(found.place)
            if source != self.wanted.source_of(found.subject):
                detail = (
                    f"it came from {source or 'a subject that was not noted'}, and by the present"
                    " names it would come from another: delete it yourself if nobody uses it"
                )
                self.refuse(found, Reason.UNPROVEN, detail)
                self.withheld.add(found.place)
                self.renamed = True

    def _soft_deleted(self) -> list[SchemaVersion]:
        """The target's live versions that the source shows as deleted."""
        return [
            found
            for place in self.places
            if (version := self.wanted.versions.get(place)) is not None
            and version.deleted
            and (found := self.target.get(place)) is not None
            and not found.deleted
        ]

    def _withhold(self, unproven: Sequence[tuple[SchemaVersion, Presence]]) -> None:
        """Versions without a record of their removal stay, unless they are few and confirmed."""
        confirmed = self.removals.confirmed
        most = max(self.removals.at_once_max, int(len(self.ledger.versions) * REMOVALS_SHARE_MAX))
        too_many = len(unproven) > most or not self.wanted.at_source
        for version, said in unproven:
            if too_many:
                detail = f"{len(unproven)} versions would go at once, and no record says so"
                self.refuse(version, Reason.REMOVALS, detail)
            elif said is Presence.GONE and not self._ids_went_on(version):
                detail = (
                    "no record says that it is gone, and the source gave its id to another schema"
                    " or never gave it: a backup may have been restored"
                )
                self.refuse(version, Reason.UNPROVEN, detail)
            elif confirmed is None:
                detail = "no record says that it is gone, and there is no registry to ask"
                self.refuse(version, Reason.UNPROVEN, detail)
            elif confirmed.get(version.place) is not said:
                self.unconfirmed.append(version)
            else:
                continue
            self.withheld.add(version.place)

    def _ids_went_on(self, gone: SchemaVersion) -> bool:
        """Whether the source has ids behind this one, and no other schema under it. Ids only grow:
        a registry that was restored from a backup, or another one, gives them once more.
        """
        source, context = self.wanted.source, context_of(gone.subject)
        held = [place for place in source.ids.get(gone.id) if context_of(place[0]) == context]
        if held:
            own = _own_text(gone)
            found = (source.get(place) for place in held)
            return all(version is not None and _own_text(version) == own for version in found)
        if context not in self.highest:
            known = source.versions()
            ids = (version.id for version in known if context_of(version.subject) == context)
            self.highest[context] = max(ids, default=SchemaId(0))
        return self.highest[context] > gone.id

    def _replaced(self) -> int:
        """How many versions of ours have another id or schema at the source now. In a registry that
        is used they are few: many are another registry's.
        """
        return sum(
            (wanted := self.wanted.versions.get(place)) is not None
            and (found := self.target.get(place)) is not None
            and self._is_ours(found)
            and (found.id, meaning_of(found)) != (wanted.id, meaning_of(wanted))
            for place in self.places
        )

    def take_away(self, found: SchemaVersion) -> None:
        if not found.deleted:
            self.writes.append(SoftDelete(found))
        if self.removals.hard:
            self.writes.append(HardDelete(found))
            self.gone.add(found.place)

    def _is_ours(self, found: SchemaVersion) -> bool:
        return self.ledger.versions.get(found.place) == (found.id, meaning_of(found))

    # ---------------------------------------------------------------------------------- registering

    def register(self) -> None:
        self.going = frozenset(self.gone)
        share = int(len(self.ledger.versions) * REMOVALS_SHARE_MAX)
        count = self._replaced()
        self.replaced_too_many = (
            count if count > max(self.removals.at_once_max // FEWER, share) else 0
        )
        refused: set[SubjectVersion] = set()
        for version in self.wanted.in_order(self.places):
            place, meaning = version.place, fingerprint(version.schema)
            found = self.target.get(place)
            if found is not None and found.id == version.id and meaning_of(found) == meaning:
                self._keep(version, found, meaning)
                continue
            problem = self._problem(version, found, meaning, refused)
            if problem is not None:
                self.refuse(version, *problem)
                refused.add(place)
            elif self._waits_for_next_plan(version, found, meaning):
                self.later.add(place)
            else:
                self.writes.append(Register(version))
                if version.deleted:
                    self.writes.append(SoftDelete(version))

    def _waits_for_next_plan(
        self, version: SchemaVersion, found: SchemaVersion | None, meaning: Fingerprint
    ) -> bool:
        """Its place or its id must become free first, or that of a version it refers to."""
        if found is not None:  # ours, and the source has another one in its place now
            self.take_away(found)
            return True
        _, owner = self._owner(version, meaning)
        if owner.place in self.gone and owner.place != version.place:
            return True
        return any(reference.place in self.later for reference in version.schema.references)

    def _keep(self, version: SchemaVersion, found: SchemaVersion, meaning: Fingerprint) -> None:
        source = self.wanted.source_of(version.subject)
        entry = VersionEntry(version.place, (version.id, meaning), source)
        self.adopted += self.ledger.missing([entry])
        if version.deleted == found.deleted:
            self.in_sync += 1
        elif version.place not in self.withheld:
            self.writes.append(SoftDelete(version) if version.deleted else Register(version))

    def _problem(
        self,
        version: SchemaVersion,
        found: SchemaVersion | None,
        meaning: Fingerprint,
        refused: set[SubjectVersion],
    ) -> tuple[Reason, str] | None:
        if found is not None and not self._is_ours(found):
            also = " with another schema" if found.id == version.id else f" under id {found.id}"
            return Reason.VERSION_TAKEN, f"the target has this version{also}"
        if found is not None and not self.removals.hard:
            return Reason.HARD_DELETES_OFF, "the target has the version that it replaces"
        if found is not None and self.replaced_too_many:
            detail = f"{self.replaced_too_many} versions would be deleted for others in their place"
            return Reason.REMOVALS, detail
        owned, owner = self._owner(version, meaning)
        if owned != meaning and owner.place != version.place and owner.place not in self.gone:
            at = f"{owner.subject} version {owner.version}"
            return Reason.ID_TAKEN, f"id {version.id} is the id of another schema, {at}"
        for reference in version.schema.references:
            if reference.place in refused:
                at = f"{reference.subject} version {reference.version}"
                return Reason.REFERENCE, f"it refers to {at}, which is refused"
        return None

    def _owner(
        self, version: SchemaVersion, meaning: Fingerprint
    ) -> tuple[Fingerprint | None, SchemaVersion]:
        """The holder of a version's id: the target's, one that stays before one that goes; or the
        first that is planned.
        """
        context = context_of(version.subject) if self.contexts else "."
        if (context, version.id) not in self.owners:
            held = self.target.ids.get(version.id)
            if self.contexts:
                held = [place for place in held if context_of(place[0]) == context]
            first = min(held, key=lambda place: (place in self.going, place), default=None)
            found = None if first is None else self.target.get(first)
            owner = (meaning, version) if found is None else (meaning_of(found), found)
            self.owners[context, version.id] = owner
        return self.owners[context, version.id]

    def refuse(self, version: SchemaVersion, reason: Reason, detail: str) -> None:
        self.refusals.append(Refusal.of(version, reason, detail))

    def report_foreign(self) -> None:
        """Versions in distributed subjects that neither the source has nor Keyway wrote."""
        for place in self.places:
            found = self.target.get(place)
            if found is not None and is_foreign(place, self.wanted, self.ledger):
                self.refuse(found, Reason.NOT_OURS, "the source has no such version")

    # ------------------------------------------------------------------------------------- settings

    def settle(self) -> None:
        """Compatibility levels and modes: the source's are set; ours that it lost are removed."""
        wanted, target, ledger = self.wanted, self.target, self.ledger
        if not wanted.at_source:
            return  # a source that lost its contents
        made: list[SetCompatibility | SetMode] = []
        for subject in self._unsettled(
            wanted.compatibility, target.compatibility, ledger.compatibility
        ):
            level = wanted.compatibility.get(subject)
            if target.compatibility.get(subject) != level:
                made.append(SetCompatibility(subject, level))
            else:
                self.adopted.append(SettingEntry("compatibility", subject, ours=False))
        for subject in self._unsettled(wanted.modes, target.modes, ledger.modes):
            mode = wanted.modes.get(subject)
            if target.modes.get(subject) != mode:
                made.append(SetMode(subject, mode))
            else:
                self.adopted.append(SettingEntry("mode", subject, ours=False))
        self.writes += self._without_too_many(made)

    def _without_too_many(
        self, made: list[SetCompatibility | SetMode]
    ) -> list[SetCompatibility | SetMode]:
        """Without a record few go at once, and none while versions are refused for lack of one."""
        settings = len(self.ledger.compatibility) + len(self.ledger.modes)
        few = max(self.removals.at_once_max // FEWER, int(settings * REMOVALS_SHARE_MAX))
        back: dict[SetCompatibility | SetMode, str] = {}
        for setting in made:
            kind = "compatibility" if isinstance(setting, SetCompatibility) else "mode"
            recorded = (kind, setting.subject) in self.wanted.unset
            if takes_back(setting, self.target) and not recorded:
                back[setting] = "mode" if kind == "mode" else "compatibility level"
        refused = len(self.withheld) > len(self.unconfirmed)
        if len(back) <= few and not (self.renamed or (self.removals.recorded and refused)):
            return made
        reason = Reason.REMOVALS if len(back) > few else Reason.UNPROVEN
        for setting, what in back.items():
            detail = f"its {what} would be taken back, {len(back)} at once, and no record says so"
            self.refusals.append(Refusal.of_setting(setting.subject, reason, detail))
        return [setting for setting in made if setting not in back]

    def _unsettled(
        self, wanted: Mapping[str, str], there: Mapping[str, str], ours: Iterable[str]
    ) -> list[str]:
        """The subjects whose setting differs from the wanted one, or is ours and not wanted."""
        found = {subject for subject, value in wanted.items() if there.get(subject) != value}
        found.update(subject for subject in ours if subject not in wanted)
        return sorted(found - self.wanted.left_alone)


def takes_back(write: Write, target: Contents) -> bool:
    """Whether the target loses a setting that the source does not show."""
    match write:
        case SetCompatibility(_, level):
            return level is None
        case SetMode(subject, mode):
            # Keyway's own, in which explicit ids count, ends with the registration.
            return mode is None and target.modes.get(subject) != IMPORT
        case _:
            return False


def is_foreign(place: SubjectVersion, wanted: Desired, ledger: Ledger) -> bool:
    """Whether a version of the target is in a distributed subject, and somebody else's."""
    return (
        place[0] in wanted.subjects
        and place not in wanted.at_source
        and place not in ledger.versions
    )


def meaning_of(version: SchemaVersion) -> Fingerprint | None:
    """None for a text that cannot be parsed: like nothing else, not even itself on the source."""
    try:
        return fingerprint(version.schema)
    except SchemaTextError:
        return None


def _own_text(version: SchemaVersion) -> Fingerprint | None:
    """Its meaning without references, whose subjects differ between the clusters."""
    return meaning_of(replace(version, schema=replace(version.schema, references=())))


# -------------------------------------------------------------------------------------------- waves


def _waves(writes: list[Write], target: Contents) -> tuple[tuple[Write, ...], ...]:
    """Each write in the first wave behind all it waits for."""
    sorter = TopologicalSorter(dict(enumerate(_waits(writes, target))))
    sorter.prepare()
    waves: list[tuple[Write, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        sorter.done(*ready)
        waves.append(tuple(sorted((writes[at] for at in ready), key=_subject_and_version)))
    return tuple(waves)


def _subject_and_version(write: Write) -> tuple[str, int]:
    return (
        (write.subject, 0) if isinstance(write, SetCompatibility | SetMode) else write.wanted.place
    )


def _waits(writes: list[Write], target: Contents) -> list[set[int]]:
    """For each write, the writes it waits for. A place is either registered or removed."""
    registers = {write.place: at for at, write in enumerate(writes) if isinstance(write, Register)}
    softs = {write.place: at for at, write in enumerate(writes) if isinstance(write, SoftDelete)}
    hards = {write.place: at for at, write in enumerate(writes) if isinstance(write, HardDelete)}
    users = _users(writes, target)
    waits: list[set[int]] = []
    of_subject: dict[str, list[int]] = {}  # Register
    for at, write in enumerate(writes):
        needed: list[int | None]
        match write:
            case Register(wanted):
                needed = [registers.get(place) for place in write.needs]
                of_subject.setdefault(wanted.subject, []).append(at)
            case SoftDelete(wanted):
                of_users = users.get(wanted.place, set())
                needed = [registers.get(wanted.place), *map(softs.get, of_users)]
                needed += map(registers.get, of_users)
            case HardDelete(wanted):
                of_users = users.get(wanted.place, set())
                needed = [softs.get(wanted.place), *map(hards.get, of_users)]
            case SetCompatibility(subject) | SetMode(subject):
                needed = [*of_subject.get(subject, [])]
            case _:
                assert_never(write)
        waits.append({number for number in needed if number is not None})
    return waits


def _users(writes: Iterable[Write], target: Contents) -> dict[SubjectVersion, set[SubjectVersion]]:
    """Of each version that goes, the versions that refer to it: on the target or soon."""
    users = {
        write.place: set(target.users.get(write.place))
        for write in writes
        if isinstance(write, SoftDelete | HardDelete)
    }
    for write in writes:
        if isinstance(write, Register):
            for place in write.needs:
                if place in users:
                    users[place].add(write.place)
    return users
