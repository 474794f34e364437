"""Where a target stands: the places that are in sync, and those that are not.

A place is in sync by what the source, the target and the ledger have at this place alone. So a
change asks for a look at its own place, and a plan for the places that are not in sync: with
200,000 schemas, a new one costs what it costs with ten. Every place that is not in sync is part of
every plan until it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schema_dist.core.contents import SETTINGS, Contents
from schema_dist.core.desired import Desired, slices
from schema_dist.core.ledger import Ledger
from schema_dist.core.limits import SLICE_PLACES
from schema_dist.core.model import SchemaVersion, SubjectVersion
from schema_dist.core.plan import Plan, Removals, is_foreign, make_plan, meaning_of


class Standing:
    def __init__(self, wanted: Desired, target: Contents, ledger: Ledger, *, hard: bool) -> None:
        """`hard`: hard deletes are made, too. Nothing is known before `catch_up`."""
        self.wanted = wanted
        self.target = target
        self.ledger = ledger
        self.in_sync: set[SubjectVersion] = set()
        self.open: set[SubjectVersion] = set()
        self._hard = hard
        self._seen: int | None = None  # changes of the target

    def follows(self, wanted: Desired, target: Contents, ledger: Ledger) -> bool:
        """Whether it compares these very contents, and can catch up with them."""
        return (
            self.wanted is wanted
            and self.target is target
            and self.ledger is ledger
            and self.is_behind is not None
        )

    @property
    def is_behind(self) -> bool | None:
        """As `Desired.is_behind`, for the source and the target."""
        source = self.wanted.is_behind
        target = set() if self._seen is None else self.target.changed_since(self._seen)
        if source is None or target is None:
            return None
        return self._seen is None or source or bool(target or self.wanted.changed)

    def catch_up(self) -> Iterator[None]:
        """Takes in everything that changed, in slices: others may work between the slices, and
        change more.
        """
        while self.is_behind:
            seen, self._seen = self._seen, self.target.changes
            yield from self.wanted.catch_up()
            changed = None if seen is None else self.target.changed_since(seen)
            touched = self.wanted.changed
            self.wanted.changed = set()
            if changed is None:
                found = {*self.wanted.versions, *self.target.order, *self.ledger.versions}
            else:
                found = self._around({*touched, *changed})
            for part in slices(found, SLICE_PLACES):
                self._look(part)
                yield

    def _around(self, places: set[SubjectVersion]) -> set[SubjectVersion]:
        """These places, and the target's other versions of their subjects. Whether a subject is
        distributed decides what becomes of strangers' versions in it.
        """
        subjects = {subject for subject, _ in places}
        there = self.target.subjects
        held = ((subject, number) for subject in subjects for number in there.get(subject, ()))
        return {*places, *held}

    def _look(self, places: Iterable[SubjectVersion]) -> None:
        for place in places:
            self.in_sync.discard(place)
            self.open.discard(place)
            if place[1] == SETTINGS:
                continue
            if self._is_in_sync(place):
                self.in_sync.add(place)
            elif self._concerns(place):
                self.open.add(place)

    def _is_in_sync(self, place: SubjectVersion) -> bool:
        wanted, found = self.wanted.versions.get(place), self.target.get(place)
        if wanted is None or found is None:
            return False
        if (wanted.id, wanted.deleted) != (found.id, found.deleted):
            return False
        if self.ledger.sources.get(place) != self.wanted.source_of(place[0]):
            return False
        meaning = meaning_of(found)
        written = self.ledger.versions.get(place)
        return meaning == meaning_of(wanted) and written == (wanted.id, meaning)

    def _concerns(self, place: SubjectVersion) -> bool:
        """Whether something may have to be done or said about a place that is not in sync."""
        if place in self.wanted.versions:
            return True
        if place in self.wanted.at_source:
            return False  # it is refused already, or not followed
        found = self.target.get(place)
        if place in self.ledger.versions:
            return found is None or not self._is_done(found)
        return found is not None and is_foreign(place, self.wanted, self.ledger)

    def _is_done(self, found: SchemaVersion) -> bool:
        """Whether the version is ours and soft-deleted, and a hard delete is not allowed."""
        ours = self.ledger.versions[found.place] == (found.id, meaning_of(found))
        return ours and found.deleted and not self._hard

    def plan(self, *, contexts: bool, removals: Removals) -> Plan:
        """The plan for the state that was caught up with. What the ledger has noted since counts,
        too.
        """
        self._look(tuple(self.open))
        return make_plan(
            self.wanted,
            self.target,
            self.ledger,
            places=self.open,
            contexts=contexts,
            removals=removals,
            in_sync=len(self.in_sync),
        )
