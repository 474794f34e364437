"""The differences between two registries, subject by subject, under the second one's names."""

from __future__ import annotations

from dataclasses import dataclass

from schema_dist.core.compare import difference
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.model import SchemaId, SchemaVersion, Version


@dataclass(frozen=True, slots=True)
class Difference:
    """One version, by the second registry's subject."""

    subject: str
    version: Version
    id: SchemaId
    what: str


def differences(first: Desired, second: Contents) -> list[Difference]:
    """`first`: the first registry's contents under the second one's names."""
    found = [
        Difference(*place, it.id, what)
        for place, it in sorted(first.versions.items())
        if (what := _of_version(it, second.get(place))) is not None
    ]
    found += [
        Difference(it.subject, it.version, it.id, f"{it.reason.value}: {it.detail}")
        for it in first.refusals
    ]
    subjects = sorted(first.subjects)
    found += [
        Difference(*it.place, it.id, "only in the second")
        for subject in subjects
        for it in second.of(subject)
        if it.place not in first.at_source
    ]
    for subject in subjects:
        mine, theirs = first.compatibility.get(subject), second.compatibility.get(subject)
        if mine != theirs:
            what = (
                f"compatibility {mine or 'unset'} in the first, {theirs or 'unset'} in the second"
            )
            found.append(Difference(subject, Version(0), SchemaId(0), what))
    return found


def _of_version(it: SchemaVersion, there: SchemaVersion | None) -> str | None:
    if there is None:
        return "only in the first"
    if it.deleted != there.deleted:
        return f"deleted in the {'first' if it.deleted else 'second'} only"
    return difference(it, there)
