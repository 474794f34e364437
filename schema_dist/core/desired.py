"""The desired contents of a target: the source's contents under the target's subject names.

A version that has no counterpart is refused by name, and only that version: its subject fits no
pattern, its text does not parse, or a schema it refers to is missing or refused itself.

The contents follow the source change by change. What becomes of a version depends on its own record
and on what becomes of the versions it refers to; whether an unfollowed version is distributed
depends on the versions that refer to it. So a change goes on to the users of a version when its
outcome differs from before, and to its references when it brings them along.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from keyway.clusters.core.names import Unfit
from keyway.clusters.core.subjects import SubjectTranslation
from schema_dist.core.compare import SchemaTextError, fingerprint
from schema_dist.core.contents import SETTINGS, Contents
from schema_dist.core.limits import SLICE_PLACES
from schema_dist.core.model import (
    GLOBAL,
    Reason,
    Reference,
    Refusal,
    SchemaVersion,
    SubjectVersion,
    Version,
)

Follows = Callable[[str], bool]  # whether a subject of the source is distributed
Outcome = int | Reason | None  # the depth of its references; why it is refused; None: not there
T = TypeVar("T")


class Desired:
    """Places are the target's unless they are said to be the source's.

    `versions`: all that the target should have. `subjects`: how many of them each subject has.
    `at_source`: every place that the source holds, also of versions that are refused or not
    followed. `tombstones`: places whose removal the source's log records; `unset`: the kinds and
    subjects of settings for which it does. `left_alone`: the
    subjects that are not followed. `changed`: places to be looked at since somebody emptied it.
    """

    def __init__(self, source: Contents, names: SubjectTranslation, follows: Follows) -> None:
        """For the subjects that `follows` names and everything they refer to. Empty before
        `catch_up`.
        """
        self.source = source
        self.versions: dict[SubjectVersion, SchemaVersion] = {}
        self.subjects: Counter[str] = Counter()
        self.compatibility: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.at_source: set[SubjectVersion] = set()
        self.tombstones: set[SubjectVersion] = set()
        self.unset: set[tuple[str, str]] = set()
        self.left_alone: set[str] = set()
        self.changed: set[SubjectVersion] = set()
        self._names = names
        self._decide = follows
        self._there: dict[str, str | Unfit] = {}
        self._followed: dict[str, bool] = {}
        self._sources: dict[str, str] = {}  # the source's subject of each of the target's
        self._refused: dict[SubjectVersion, Refusal] = {}  # by the source's place
        self._depths: dict[
            SubjectVersion, int
        ] = {}  # of versions with references, by the source's place
        self._brought: dict[str, set[Version]] = {}  # not followed, but referred to; the source's
        self._circular: dict[SubjectVersion, bool | None] = {}
        self._seen: int | None = None  # changes of the source

    def source_of(self, subject: str) -> str | None:
        """The subject of the source that this one of the target comes from; None: there is none by
        these names.
        """
        if subject not in self._sources:
            back = self._names.back(subject)
            return back if isinstance(back, str) else None
        return self._sources[subject]

    # ------------------------------------------------------------------------------------ following

    @property
    def is_behind(self) -> bool | None:
        """Whether there is something to catch up with. None: so much has changed that everything
        must be read anew, by another object.
        """
        if self._seen is None:
            return True
        changed = self.source.changed_since(self._seen)
        return None if changed is None else bool(changed)

    def catch_up(self) -> Iterator[None]:
        """Follows the source to its present state, in slices: others may work in between."""
        while self.is_behind:
            changed = None if self._seen is None else self.source.changed_since(self._seen)
            self._seen = self.source.changes
            for part in slices(self.source.places() if changed is None else changed, SLICE_PLACES):
                self._follow(part)
                yield

    def _follow(self, places: Iterable[SubjectVersion]) -> None:
        self._circular.clear()
        waiting = deque(places)
        if any(self._outcome(place) is not None for place in waiting):  # a user may be gone
            brought = self._brought.items()
            waiting.extend((subject, version) for subject, of in brought for version in of)
        subjects: dict[str, None] = {}
        while waiting:
            place = waiting.popleft()
            subject, version = place
            subjects[subject] = None
            if version == SETTINGS:
                continue
            before = self._outcome(place)
            self._bring(place)
            after = self._outcome(place)
            if before != after:
                waiting.extend(self.source.users.get(place))
            held = self.source.get(place)
            if held is not None and after is not None:
                for reference in held.schema.references:
                    if reference.place in self.source.order and (
                        self._outcome(reference.place) is None
                    ):
                        waiting.append(reference.place)
        for subject in subjects:
            self._settle(subject)

    def _outcome(self, place: SubjectVersion) -> Outcome:
        if place in self._refused:
            return self._refused[place].reason
        there = self._target(place)
        return self._depths.get(place, 0) if there in self.versions else None

    def _bring(self, place: SubjectVersion) -> None:
        """Brings one place of the source up to date."""
        version, there = self.source.get(place), self._target(place)
        if there is not None:
            _keep(self.at_source, there, version is not None)
            _keep(self.tombstones, there, place in self.source.removed)
            self.changed.add(there)
            if self.versions.pop(there, None) is not None:
                self.subjects[there[0]] -= 1
                if not self.subjects[there[0]]:
                    del self.subjects[there[0]]
        self._refused.pop(place, None)
        self._depths.pop(place, None)
        taken = version is not None and self._is_taken(place)
        self._note_brought(place, taken=taken)
        if version is None or not taken:
            return
        made = self._translated(version)
        if isinstance(made, Refusal):
            self._refused[place] = made
            return
        assert there is not None
        self.versions[there] = made
        self.subjects[there[0]] += 1
        if version.schema.references:
            depths = (self._depths.get(used.place, 0) for used in version.schema.references)
            self._depths[place] = 1 + max(depths)

    def _target(self, place: SubjectVersion) -> SubjectVersion | None:
        there = self._target_of(place[0])
        return None if isinstance(there, Unfit) else (there, place[1])

    def _target_of(self, subject: str) -> str | Unfit:
        if subject not in self._there:
            there = self._there[subject] = self._names.there(subject)
            if not isinstance(there, Unfit):
                self._sources[there] = subject
        return self._there[subject]

    def _follows(self, subject: str) -> bool:
        if subject not in self._followed:
            self._followed[subject] = self._decide(subject)
        return self._followed[subject]

    def _is_taken(self, first: SubjectVersion) -> bool:
        """Whether the version is followed, or a followed version refers to it in any number of
        steps.
        """
        found, stack = {first}, [first]
        while stack:
            place = stack.pop()
            if self._follows(place[0]):
                return True
            new = [user for user in self.source.users.get(place) if user not in found]
            found.update(new)
            stack += new
        return False

    def _note_brought(self, place: SubjectVersion, *, taken: bool) -> None:
        subject, version = place
        if taken and not self._follows(subject):
            self._brought.setdefault(subject, set()).add(version)
        elif subject in self._brought:
            self._brought[subject].discard(version)
            if not self._brought[subject]:
                del self._brought[subject]

    # ---------------------------------------------------------------------------------- translating

    def _translated(self, version: SchemaVersion) -> SchemaVersion | Refusal:
        subject = self._target_of(version.subject)
        if isinstance(subject, Unfit):
            return Refusal.of(version, Reason.SUBJECT, str(subject))
        there = version if subject == version.subject else replace(version, subject=subject)
        references: list[Reference] = []
        for used in version.schema.references:
            name = f"{used.subject} version {used.version}"
            target = self._target_of(used.subject)
            if self.source.get(used.place) is None:
                detail = f"it refers to {name}, which does not exist"
                return Refusal.of(there, Reason.REFERENCE, detail)
            if (
                isinstance(target, Unfit)
                or (target, used.version) not in self.versions
                or self._leads_to_a_circle(used.place)
            ):
                detail = f"it refers to {name}, which is refused or part of a circle"
                return Refusal.of(there, Reason.REFERENCE, detail)
            references.append(Reference(used.name, target, used.version))
        if tuple(references) != version.schema.references:
            there = replace(there, schema=replace(version.schema, references=tuple(references)))
        try:
            fingerprint(there.schema)
        except SchemaTextError as error:
            return Refusal.of(there, Reason.SCHEMA, str(error))
        return there

    def _leads_to_a_circle(self, first: SubjectVersion) -> bool:
        known, stack = self._circular, [first]  # None: on the way
        while stack:
            place = stack[-1]
            known.setdefault(place, None)
            found = self.source.get(place)
            used = [] if found is None else [other.place for other in found.schema.references]
            unknown = next((needed for needed in used if needed not in known), None)
            if unknown is not None:
                stack.append(unknown)
                continue
            stack.pop()
            if known[place] is None:
                known[place] = any(known[needed] is not False for needed in used)
        return bool(known[first])

    def _settle(self, subject: str) -> None:
        """Brings the settings of a subject of the source up to date."""
        there = GLOBAL if subject == GLOBAL else self._target_of(subject)
        if isinstance(there, Unfit):
            return
        held, follows = subject in self.source.subjects, self._follows(subject)
        distributed = held and (follows or subject in self._brought)
        _keep(self.left_alone, there, held and not distributed)
        takes = there == GLOBAL or distributed or follows
        for kind, source, mine in (
            ("compatibility", self.source.compatibility, self.compatibility),
            ("mode", self.source.modes, self.modes),
        ):
            mine.pop(there, None)
            if takes and subject in source:
                mine[there] = source[subject]
            _keep(self.unset, (kind, there), (kind, subject) in self.source.unset)
        self.modes.pop(GLOBAL, None)  # the whole registry's mode is the target's own affair

    # ------------------------------------------------------------------------------------ in order

    @property
    def refusals(self) -> list[Refusal]:
        """All refusals, in the source's order."""
        order = self.source.order
        ordered = sorted(self._refused, key=lambda place: (order.get(place, 0), place))
        return [self._refused[place] for place in ordered]

    def in_order(self, places: Iterable[SubjectVersion]) -> list[SchemaVersion]:
        """The versions at these places, references before users, else in the source's order."""
        ranked = sorted(places, key=self._rank)
        return [self.versions[place] for place in ranked if place in self.versions]

    def _rank(self, place: SubjectVersion) -> tuple[int, int, SubjectVersion]:
        here = self._sources.get(place[0], ""), place[1]
        return self._depths.get(here, 0), self.source.order.get(here, 0), place


def desired(source: Contents, names: SubjectTranslation, follows: Follows) -> Desired:
    """The target's contents for the source's present ones."""
    made = Desired(source, names, follows)
    for _ in made.catch_up():
        continue
    return made


def slices(found: Iterable[T], size: int) -> Iterator[list[T]]:
    each = iter(found)
    while part := list(islice(each, size)):
        yield part


def _keep(places: set[T], place: T, wanted: bool) -> None:
    if wanted:
        places.add(place)
    else:
        places.discard(place)
