"""The differences between two registries, subject by subject, under the second one's names."""

from __future__ import annotations

from dataclasses import dataclass

from schema_dist.core.compare import difference
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.model import SchemaId, SchemaVersion, Version


@dataclass(frozen=True, slots=True)
class Difference:
    """One version that differs, by the second registry's subject."""

    subject: str
    version: Version
    id: SchemaId
    what: str


def differences(first: Desired, second: Contents) -> list[Difference]:
    """`first`: the first registry's contents under the second one's names."""
    found = [
        Difference(*place, version.id, what)
        for place, version in sorted(first.versions.items())
        if (what := _of_version(version, second.get(place))) is not None
    ]
    found += [
        Difference(
            refusal.subject,
            refusal.version,
            refusal.id,
            f"{refusal.reason.value}: {refusal.detail}",
        )
        for refusal in first.refusals
    ]
    subjects = sorted(first.subjects)
    found += [
        Difference(*version.place, version.id, "only in the second")
        for subject in subjects
        for version in second.of(subject)
        if version.place not in first.at_source
    ]
    for subject in subjects:
        mine, theirs = first.compatibility.get(subject), second.compatibility.get(subject)
        if mine != theirs:
            what = (
                f"compatibility {mine or 'unset'} in the first, {theirs or 'unset'} in the second"
            )
            found.append(Difference(subject, Version(0), SchemaId(0), what))
    return found


def _of_version(version: SchemaVersion, there: SchemaVersion | None) -> str | None:
    if there is None:
        return "only in the first"
    if version.deleted != there.deleted:
        return f"deleted in the {'first' if version.deleted else 'second'} only"
    return difference(version, there)
