"""The ledger: its notes before and after a write, and its records."""

from __future__ import annotations

import pytest

from schema_dist.core.compare import Fingerprint
from schema_dist.core.ledger import (
    Entry,
    Ledger,
    SettingEntry,
    VersionEntry,
    decode,
    encode,
    entries_after,
    entries_before,
)
from schema_dist.core.model import (
    HardDelete,
    Register,
    Schema,
    SchemaId,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SoftDelete,
    Version,
    Write,
)

A = SchemaVersion(
    subject="a", version=Version(1), id=SchemaId(5), schema=Schema("AVRO", '"string"')
)
PRINT = Fingerprint("f")
WRITTEN = VersionEntry(A.place, (A.id, PRINT), "its subject at the source")


@pytest.mark.parametrize(
    ("write", "before", "after"),
    [
        (Register(A), [WRITTEN], []),
        (SoftDelete(A), [], []),
        (HardDelete(A), [], [VersionEntry(A.place, None)]),
        (SetCompatibility("a", "FULL"), [SettingEntry("compatibility", "a", ours=True)], []),
        (SetCompatibility("a", None), [], [SettingEntry("compatibility", "a", ours=False)]),
        (SetMode("a", "IMPORT"), [SettingEntry("mode", "a", ours=True)], []),
        (SetMode("a", None), [], [SettingEntry("mode", "a", ours=False)]),
    ],
)
def test_an_intention_is_noted_first_and_a_removal_last(
    write: Write, before: list[Entry], after: list[Entry]
) -> None:
    assert entries_before(write, PRINT, WRITTEN.source) == before
    assert entries_after(write) == after


@pytest.mark.parametrize(
    "entry",
    [
        WRITTEN,
        VersionEntry((":.c:größe", Version(7)), None),
        SettingEntry("mode", "", ours=True),
        SettingEntry("compatibility", "a", ours=False),
    ],
)
def test_records_come_back(entry: Entry) -> None:
    assert decode(*encode(entry)) == entry


def test_other_records_are_none_and_damaged_ones_say_so() -> None:
    assert decode(b'{"kind":"future","subject":"a"}', b"{}") is None
    for key, value in ((b"x", b"{}"), (b"[]", b"{}"), (b'{"kind":"version","subject":"a"}', b"{}")):
        with pytest.raises(ValueError, match=r"."):
            decode(key, value)
    with pytest.raises(ValueError, match="lacks 'id'"):
        decode(encode(WRITTEN)[0], b"{}")


def test_missing_is_what_would_change_something() -> None:
    ledger = Ledger()
    entries: list[Entry] = [WRITTEN, SettingEntry("mode", "a", ours=True)]
    assert ledger.missing(entries) == entries
    ledger.apply(entries)
    assert ledger.missing(entries) == []
    gone: list[Entry] = [VersionEntry(A.place, None), SettingEntry("mode", "a", ours=False)]
    assert ledger.missing(gone) == gone
    ledger.apply(gone)
    assert (ledger.versions, ledger.modes) == ({}, set())
    assert ledger.missing(gone) == []


def test_nothing_is_left_of_a_version_that_is_gone() -> None:
    """An entry of an earlier version of Keyway does not tell where the next one came from."""
    ledger = Ledger()
    ledger.apply([WRITTEN, VersionEntry(A.place, None), VersionEntry(A.place, WRITTEN.written)])
    assert (ledger.versions, ledger.sources) == ({A.place: WRITTEN.written}, {})
