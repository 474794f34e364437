"""The desired contents of a target: names translated, references first, refusals by name."""

from __future__ import annotations

from dataclasses import replace

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import RecordNames, pair_subjects
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired, desired
from schema_dist.core.limits import SLICE_PLACES
from schema_dist.core.model import Reason, Reference, Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.records import CompatibilitySet

NAMES = pair_subjects(compile_pattern("a-{topic}"), compile_pattern("b-{topic}"))


def version(subject: str, number: int, *refers_to: str, text: str = '"string"') -> SchemaVersion:
    references = tuple(Reference(name, name, Version(1)) for name in refers_to)
    return SchemaVersion(
        subject=subject,
        version=Version(1),
        id=SchemaId(number),
        schema=Schema("AVRO", text, references),
    )


def made(*versions: SchemaVersion, only: str = "") -> Desired:
    source = Contents()
    for at, added in enumerate(versions):
        source.put(added, at)
    return desired(source, NAMES, lambda subject: subject.startswith(only))


def refused(found: Desired) -> list[tuple[str, Reason]]:
    return [(refusal.subject, refusal.reason) for refusal in found.refusals]


def test_names_and_references_are_translated_and_references_come_first() -> None:
    found = made(
        version("a-x-value", 1, "a-y-value"),
        version("a-y-value", 2, "a-z-value"),
        version("a-z-value", 3),
    )
    for places in (sorted(found.versions), sorted(found.versions, reverse=True)):
        assert [wanted.subject for wanted in found.in_order(places)] == [
            "b-z-value",
            "b-y-value",
            "b-x-value",
        ]
    x = found.versions["b-x-value", Version(1)]
    assert x.schema.references == (Reference("a-y-value", "b-y-value", Version(1)),)
    assert x.id == 1
    assert not found.refusals


def test_the_source_s_order_is_kept() -> None:
    found = made(version("a-q-value", 9), version("a-c-value", 3), version("a-m-value", 5))
    assert [wanted.id for wanted in found.in_order(found.versions)] == [9, 3, 5]


def test_each_refusal_concerns_its_version_and_its_users_alone() -> None:
    found = made(
        version("other-value", 1),
        version("a-broken-value", 2, text="{"),
        version("a-user-value", 3, "a-broken-value"),
        version("a-lost-value", 4, "a-nowhere-value"),
        version("a-foreign-value", 5, "other-value"),
        version("com.acme.Record", 6),
        version("a-good-value", 7),
    )
    assert refused(found) == [
        ("other-value", Reason.SUBJECT),
        ("b-broken-value", Reason.SCHEMA),
        ("b-user-value", Reason.REFERENCE),
        ("b-lost-value", Reason.REFERENCE),
        ("b-foreign-value", Reason.REFERENCE),
        ("com.acme.Record", Reason.SUBJECT),
    ]
    assert list(found.versions) == [("b-good-value", 1)]
    assert ("b-broken-value", 1) in found.at_source
    assert "a-nowhere-value version 1, which does not exist" in found.refusals[3].detail


def test_circles_are_refused_and_end() -> None:
    found = made(
        version("a-self-value", 1, "a-self-value"),
        version("a-one-value", 2, "a-two-value"),
        version("a-two-value", 3, "a-one-value"),
    )
    assert found.versions == {}
    assert {refusal.reason for refusal in found.refusals} == {Reason.REFERENCE}
    assert len(found.refusals) == 3


def test_a_circle_that_nobody_follows_ends_the_search_for_followers() -> None:
    found = made(
        version("a-z-value", 1),
        version("a-one-value", 2, "a-two-value", "a-z-value"),
        version("a-two-value", 3, "a-one-value"),
        only="a-followed",
    )
    assert found.versions == {}
    assert found.left_alone == {"b-one-value", "b-two-value", "b-z-value"}


def test_a_version_that_closes_a_circle_later_is_refused_with_the_others() -> None:
    source = Contents()
    source.put(version("a-y-value", 1), 0)
    source.put(version("a-x-value", 2, "a-y-value"), 1)
    found = desired(source, NAMES, lambda _subject: True)
    assert len(found.versions) == 2
    source.put(version("a-y-value", 3, "a-x-value"), 2)
    follow(found)
    assert found.versions == {}
    assert [refusal.id for refusal in found.refusals] == [2, 3]


def test_what_comes_later_refers_to_all_parts_of_a_chain() -> None:
    source = Contents()
    chain = (
        version("a-w-value", 1),
        version("a-v-value", 2, "a-w-value"),
        version("a-u-value", 3, "a-v-value"),
    )
    for at, added in enumerate(chain):
        source.put(added, at)
    found = desired(source, NAMES, lambda _subject: True)
    source.put(version("a-x-value", 4, "a-v-value", "a-u-value"), 3)
    follow(found)
    assert not found.refusals, "there is no circle"


def test_a_version_that_refers_to_nothing_any_more_is_back_in_the_source_s_order() -> None:
    source = Contents()
    source.put(version("a-x-value", 1, "a-z-value"), 0)
    source.put(version("a-z-value", 2), 1)
    found = desired(source, NAMES, lambda _subject: True)
    assert [wanted.id for wanted in found.in_order(found.versions)] == [2, 1]
    source.put(version("a-x-value", 3), 0)
    follow(found)
    assert [wanted.id for wanted in found.in_order(found.versions)] == [3, 2]


def test_as_many_as_there_are() -> None:
    """They are followed in slices."""
    count = 2 * SLICE_PLACES + 1
    found = made(*(version(f"a-{at}-value", at) for at in range(count)))
    assert len(found.versions) == count


def test_a_long_chain_of_references_needs_no_deep_stack() -> None:
    count = 3_000
    chain = [version(f"a-{at}-value", at, f"a-{at + 1}-value") for at in range(count)]
    found = made(*chain, version(f"a-{count}-value", count))
    assert len(found.versions) == count + 1


def test_the_longest_way_to_a_leaf_decides_the_order() -> None:
    """Also where the source's order is the other way round, as of a registry that is read by id."""
    found = made(
        version("a-x-value", 1, "a-z-value", "a-y-value"),
        version("a-y-value", 2, "a-z-value"),
        version("a-z-value", 3),
    )
    assert [wanted.id for wanted in found.in_order(found.versions)] == [3, 2, 1]


def test_a_version_that_refers_to_others_later_goes_before_its_users_all_the_same() -> None:
    source = Contents()
    user, used = version("a-x-value", 1, "a-y-value"), version("a-y-value", 2)
    for at, added in enumerate((user, used, version("a-z-value", 3))):
        source.put(added, at)
    found = desired(source, NAMES, lambda _subject: True)
    source.put(version("a-y-value", 2, "a-z-value"), 3)
    follow(found)
    assert [wanted.id for wanted in found.in_order(found.versions)] == [3, 2, 1]


def test_a_subject_that_loses_one_of_two_versions_has_the_other() -> None:
    source = Contents()
    first, second = version("a-x-value", 1), replace(version("a-x-value", 2), version=Version(2))
    for at, added in enumerate((first, second)):
        source.put(added, at)
    found = desired(source, NAMES, lambda _subject: True)
    source.remove(second.place)
    follow(found)
    assert found.subjects == {"b-x-value": 1}
    source.remove(first.place)
    follow(found)
    assert found.subjects == {}


def test_what_was_brought_goes_with_its_last_user_and_not_before() -> None:
    """Each version of a subject by itself, and also if others come in the same moment."""
    source = Contents()
    second = replace(version("a-y-value", 2, text='"bytes"'), version=Version(2))
    refers = replace(
        version("a-x2-value", 4, text='"int"'),
        schema=Schema("AVRO", '"int"', (Reference("y", "a-y-value", Version(2)),)),
    )
    users = (version("a-x1-value", 3, "a-y-value"), refers)
    for at, added in enumerate((version("a-y-value", 1), second, *users)):
        source.put(added, at)
    found = desired(source, NAMES, lambda subject: subject.startswith("a-x"))
    assert brought(found) == {1, 2}
    source.remove(users[0].place)
    follow(found)
    assert brought(found) == {2}
    source.remove(users[1].place)
    source.put(version("a-x9-value", 9), 9)  # in the same moment
    follow(found)
    assert brought(found) == set()
    assert found.left_alone == {"b-y-value"}


def follow(found: Desired) -> None:
    for _ in found.catch_up():
        continue


def brought(found: Desired) -> set[int]:
    return {number for subject, number in found.versions if subject == "b-y-value"}


def test_what_is_followed_brings_what_it_refers_to() -> None:
    found = made(
        version("a-x-value", 1, "a-y-value"),
        version("a-y-value", 2),
        version("a-z-value", 3),
        only="a-x",
    )
    assert [wanted.subject for wanted in found.in_order(found.versions)] == [
        "b-y-value",
        "b-x-value",
    ]
    assert ("b-z-value", 1) in found.at_source  # so that it is not taken for removed
    assert found.left_alone == {"b-z-value"}


def test_what_comes_later_brings_what_it_refers_to() -> None:
    source = Contents()
    source.put(version("a-y-value", 1), 0)
    found = desired(source, NAMES, lambda subject: subject.startswith("a-x"))
    assert (found.versions, found.left_alone) == ({}, {"b-y-value"})
    source.put(version("a-x-value", 2, "a-y-value"), 1)
    follow(found)
    assert [wanted.id for wanted in found.in_order(found.versions)] == [1, 2]
    assert (found.refusals, found.left_alone) == ([], set())


def test_what_the_source_removes_is_gone_with_its_settings() -> None:
    source = Contents()
    source.put(version("a-x-value", 1), 0)
    source.apply(CompatibilitySet("a-x-value", "NONE"), 1)
    found = desired(source, NAMES, lambda _subject: True)
    place = ("b-x-value", 1)
    assert (place in found.at_source, found.tombstones) == (True, set())
    source.remove(("a-x-value", Version(1)))
    source.apply(CompatibilitySet("a-x-value", None), 2)
    follow(found)
    assert (found.at_source, found.tombstones, found.compatibility) == (set(), {place}, {})
    source.put(version("a-x-value", 1), 3)
    follow(found)
    assert (found.at_source, found.tombstones) == ({place}, set())


def test_settings_follow_their_subjects() -> None:
    source = Contents()
    source.put(version("a-x-value", 1), 0)
    source.compatibility = {
        "": "FULL",
        "a-x-value": "NONE",
        "a-empty-value": "NONE",
        "evil": "NONE",
    }
    source.modes = {"": "READONLY", "a-x-value": "READONLY"}
    found = desired(source, NAMES, lambda _subject: True)
    assert found.compatibility == {"": "FULL", "b-x-value": "NONE", "b-empty-value": "NONE"}
    assert found.modes == {"b-x-value": "READONLY"}  # the whole registry's is the target's own
    assert desired(source, NAMES, lambda _subject: False).compatibility == {"": "FULL"}


def test_contexts_are_kept() -> None:
    names = pair_subjects(
        compile_pattern("a-{topic}"), compile_pattern("b-{topic}"), RecordNames.KEEP
    )
    source = Contents()
    source.put(version(":.eu:a-x-value", 1), 0)
    assert list(desired(source, names, lambda _subject: True).versions) == [(":.eu:b-x-value", 1)]
