"""The desired contents of a target: the source's contents under the target's subject names.

A version that has no counterpart is refused by name, and only that version: its subject fits no
pattern, its text does not parse, or a schema it refers to is missing or refused itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from clusters.core.names import Unfit
from clusters.core.subjects import SubjectTranslation
from schema_dist.core.compare import Fingerprint, SchemaTextError, fingerprint
from schema_dist.core.contents import Contents
from schema_dist.core.model import (
    GLOBAL,
    Place,
    Reason,
    Reference,
    Refusal,
    SchemaVersion,
)

Follows = Callable[[str], bool]  # whether a subject of the source is distributed


@dataclass(slots=True)
class Desired:
    """`versions`: references before their users, else in the source's order. `at_source`: every
    place of the target that the source holds, also of versions that are refused or not followed.
    `left_alone`: the target's subjects that are not followed.
    """

    versions: dict[Place, SchemaVersion] = field(default_factory=dict)
    fingerprints: dict[Place, Fingerprint] = field(default_factory=dict)
    compatibility: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    at_source: set[Place] = field(default_factory=set)
    left_alone: set[str] = field(default_factory=set)


def desired(source: Contents, names: SubjectTranslation, follows: Follows) -> Desired:
    """The target's contents, for the subjects that `follows` names and all they refer to."""
    made = Desired()
    subjects: dict[str, str | Unfit] = {}

    def target_of(subject: str) -> str | Unfit:
        if subject not in subjects:
            subjects[subject] = names.there(subject)
        return subjects[subject]

    followed = [it for it in source.versions() if follows(it.subject)]
    followed.sort(key=lambda it: (source.order[it.place], it.place))
    refused: set[Place] = set()
    for it in _with_references(source, followed):
        problem = _translate(it, source, target_of, refused, made)
        if problem is not None:
            refused.add(it.place)
            made.refusals.append(problem)
    distributed = {subject for subject, _ in made.at_source}
    for it in source.versions():
        there = target_of(it.subject)
        if not isinstance(there, Unfit):
            made.at_source.add((there, it.version))
            if there not in distributed:
                made.left_alone.add(there)
    _translate_settings(source.compatibility, target_of, follows, distributed, made.compatibility)
    _translate_settings(source.modes, target_of, follows, distributed, made.modes)
    made.modes.pop(GLOBAL, None)  # the whole registry's mode is the target's own affair
    return made


def _translate_settings(
    source: Mapping[str, str],
    target_of: Callable[[str], str | Unfit],
    follows: Follows,
    distributed: set[str],
    made: dict[str, str],
) -> None:
    for subject, value in source.items():
        there = target_of(subject) if subject else GLOBAL
        if not isinstance(there, Unfit) and (
            there == GLOBAL or there in distributed or follows(subject)
        ):
            made[there] = value


def _with_references(source: Contents, versions: Iterable[SchemaVersion]) -> list[SchemaVersion]:
    """The versions and all they refer to, referred ones first, without recursion."""
    done: set[Place] = set()
    made: list[SchemaVersion] = []
    for first in versions:
        stack = [(first, False)]
        entered: set[Place] = set()
        while stack:
            it, after = stack.pop()
            if it.place in done:
                continue
            if after or it.place in entered:  # entered again: a circle, cut here
                done.add(it.place)
                made.append(it)
                continue
            entered.add(it.place)
            stack.append((it, True))
            for reference in reversed(it.schema.references):
                found = source.get(reference.place)
                if found is not None and found.place not in entered:
                    stack.append((found, False))
    return made


def _translate(
    it: SchemaVersion,
    source: Contents,
    target_of: Callable[[str], str | Unfit],
    refused: set[Place],
    made: Desired,
) -> Refusal | None:
    """Adds one version to `made`; the refusal if that cannot be."""
    subject = target_of(it.subject)
    if isinstance(subject, Unfit):
        return _refusal(it, Reason.SUBJECT, str(subject))
    there = replace(it, subject=subject)
    made.at_source.add(there.place)
    references: list[Reference] = []
    for reference in it.schema.references:
        name = f"{reference.subject} version {reference.version}"
        if source.get(reference.place) is None:
            return _refusal(there, Reason.REFERENCE, f"it refers to {name}, which does not exist")
        target = target_of(reference.subject)
        if reference.place in refused or isinstance(target, Unfit):
            return _refusal(there, Reason.REFERENCE, f"it refers to {name}, which is refused")
        place = target, reference.version
        if place not in made.versions:
            return _refusal(there, Reason.REFERENCE, f"it refers to {name}, in a circle")
        references.append(Reference(reference.name, target, reference.version))
    there = replace(there, schema=replace(it.schema, references=tuple(references)))
    try:
        made.fingerprints[there.place] = fingerprint(there.schema)
    except SchemaTextError as error:
        return _refusal(there, Reason.SCHEMA, str(error))
    made.versions[there.place] = there
    return None


def _refusal(it: SchemaVersion, reason: Reason, detail: str) -> Refusal:
    return Refusal(reason=reason, subject=it.subject, version=it.version, id=it.id, detail=detail)
