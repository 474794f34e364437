"""A registry's contents, from events in the order of its log."""

from __future__ import annotations

from schema_dist.core.contents import Contents
from schema_dist.core.limits import JOURNAL_MAX
from schema_dist.core.model import Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    Ignored,
    Malformed,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)


def written(number: int, *, deleted: bool = False) -> SchemaWritten:
    return SchemaWritten(
        SchemaVersion(
            subject="s",
            version=Version(number),
            id=SchemaId(number),
            schema=Schema("AVRO", '"string"'),
            deleted=deleted,
        )
    )


def after(*events: Event) -> Contents:
    contents = Contents()
    for at, event in enumerate(events):
        contents.apply(event, at)
    return contents


def live(contents: Contents) -> dict[int, bool]:
    return {version.version: not version.deleted for version in contents.of("s")}


def test_versions_come_go_and_come_back() -> None:
    assert list(live(after(written(2), written(1)))) == [1, 2], "ascending"
    assert live(after(written(1), written(1, deleted=True))) == {1: False}
    assert live(after(written(1, deleted=True), written(1))) == {1: True}


def test_a_tombstone_removes_and_is_remembered_until_the_version_returns() -> None:
    contents = after(written(1), written(2), SchemaRemoved("s", Version(1)))
    assert live(contents) == {2: True}
    assert contents.removed == {("s", 1)}
    assert len(contents) == 1
    contents.apply(written(1), 9)
    assert contents.removed == set()
    assert contents.order["s", Version(1)] == 9
    contents.apply(SchemaRemoved("s", Version(1)), 10)
    contents.apply(SchemaRemoved("s", Version(2)), 11)
    assert contents.subjects == {}


def test_a_deleted_subject_is_soft_deleted_up_to_its_version() -> None:
    contents = after(written(1), written(2), written(3), SubjectDeleted("s", Version(2)))
    assert live(contents) == {1: False, 2: False, 3: True}
    contents.apply(SubjectCleared("s"), 9)
    assert live(contents) == {3: True}
    assert live(after(SubjectDeleted("other", Version(9)), SubjectCleared("other"))) == {}


def test_settings_and_the_rest() -> None:
    contents = after(
        CompatibilitySet("", "FULL"),
        CompatibilitySet("s", "NONE"),
        ModeSet("s", "READONLY"),
        CompatibilitySet("s", None),
        ModeSet("t", None),
        Ignored("NOOP"),
        Malformed("no key"),
        Malformed("no key"),
    )
    assert contents.compatibility == {"": "FULL"}
    assert contents.modes == {"s": "READONLY"}
    assert contents.ignored == {"NOOP": 1}
    assert contents.malformed == {"no key": 2}
    assert contents.changes == 5


def test_the_latest_changes_are_remembered() -> None:
    """At least ten thousand, and at most twice as many."""
    contents = Contents()
    for at in range(2 * JOURNAL_MAX - 1):
        contents.apply(written(1 + at % 3), at)
    assert contents.changed_since(0) == {("s", 1), ("s", 2), ("s", 3)}
    contents.apply(written(4), 0)
    assert contents.changes == 2 * JOURNAL_MAX
    assert contents.changed_since(JOURNAL_MAX - 1) is None
    assert contents.changed_since(JOURNAL_MAX) == {("s", at) for at in (1, 2, 3, 4)}
    assert contents.changed_since(2 * JOURNAL_MAX - 1) == {("s", 4)}


def test_another_reading_says_whether_removals_have_records() -> None:
    mine, listed = after(written(1)), after(written(1))
    listed.recorded = False
    mine.become(listed)
    assert not mine.recorded


def test_another_reading_changes_what_differs_alone() -> None:
    mine = after(written(1), written(2), written(3), CompatibilitySet("s", "FULL"))
    before = mine.changes
    mine.become(after(written(2), written(3, deleted=True), ModeSet("s", "READONLY")))
    assert live(mine) == {2: True, 3: False}
    assert (mine.compatibility, mine.modes) == ({}, {"s": "READONLY"})
    assert mine.removed == set()  # a list that lacks a version is no tombstone
    assert mine.changed_since(before) == {("s", 1), ("s", 3), ("s", 0)}
    assert list(mine.ids.get(SchemaId(1))) == []


def test_a_config_without_a_level_takes_the_level_away_and_keeps_the_rest() -> None:
    """As Confluent's registry writes it, from 7.4 on; it counted as malformed, and the level that
    stood before went on counting.
    """
    contents = after(CompatibilitySet("s", "FULL"), CompatibilitySet("s", None, '{"alias":"t"}'))
    assert contents.compatibility == {}
    assert contents.unset == {("compatibility", "s")}, "on record"
    assert contents.more == {"s": '{"alias":"t"}'}
    contents.apply(CompatibilitySet("s", None), 3)
    assert contents.more == {}
