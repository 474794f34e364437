"""The licences in a CycloneDX SBOM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# In no metadata; from the project's own LICENSE file.
KNOWN: Mapping[str, str] = {"protobuf": "BSD-3-Clause"}


@dataclass(frozen=True, slots=True)
class Licensed:
    package: str
    version: str
    licence: str  # an SPDX expression or id, or the project's own words; empty: unknown


def licences(bill: Mapping[str, Any]) -> list[Licensed]:
    """Of all components, sorted by name."""
    return sorted(
        (
            Licensed(
                component["name"],
                component.get("version", ""),
                _licence(component) or KNOWN.get(component["name"], ""),
            )
            for component in bill.get("components", ())
        ),
        key=lambda row: row.package.lower(),
    )


def table(rows: list[Licensed]) -> str:
    """For people: Markdown."""
    head = "| package | version | licence |\n|---|---|---|\n"
    return head + "".join(f"| {row.package} | {row.version} | {row.licence} |\n" for row in rows)


def _licence(component: Mapping[str, Any]) -> str:
    found = []
    for entry in component.get("licenses", ()):
        licence = entry.get("license", {})
        word = entry.get("expression") or licence.get("id") or licence.get("name", "")
        if word and word not in found:
            found.append(word.splitlines()[0][:80])
    return " / ".join(found)
