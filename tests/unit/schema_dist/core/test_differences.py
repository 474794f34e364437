"""What `keyway schemas verify` finds between two registries."""

from __future__ import annotations

from dataclasses import replace

from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.differences import differences
from schema_dist.core.model import SchemaVersion
from tests.unit.schema_dist.core.test_plan import SAME, holding, version

FIRST = [version("a", 1), version("a", 2, at=2), version("b", 3)]


def found(first: Contents, second: Contents, follows: str = "") -> list[tuple[str, int, int, str]]:
    """Subject, version, id and what differs."""
    wanted = Desired(first, SAME, lambda subject: subject.startswith(follows))
    for _ in wanted.catch_up():
        continue
    return [
        (differing.subject, differing.version, differing.id, differing.what)
        for differing in differences(wanted, second)
    ]


def test_two_registries_that_have_the_same() -> None:
    same, there = holding(*FIRST), holding(*FIRST)
    for contents in (same, there):
        contents.compatibility = {"a-value": "FULL"}
    assert found(same, there) == []


def test_a_version_that_one_of_them_lacks() -> None:
    more, other = version("b", 4, at=2), version("a", 5, at=3)
    assert found(holding(*FIRST[::-1]), holding(FIRST[0], more, other)) == [
        ("a-value", 2, 2, "only in the first"),
        ("b-value", 1, 3, "only in the first"),
        ("a-value", 3, 5, "only in the second"),
        ("b-value", 2, 4, "only in the second"),
    ]


def test_the_second_s_own_subjects_are_no_difference() -> None:
    """Nor are those that the first has and that are not followed."""
    there = holding(*FIRST, version("local", 9))
    assert found(holding(*FIRST), there) == []
    assert found(holding(*FIRST), holding(*FIRST[:2], version("b", 7)), follows="a") == []


def test_a_version_that_is_deleted_in_one_of_them() -> None:
    gone: list[SchemaVersion] = [replace(held, deleted=True) for held in FIRST]
    here, there = holding(gone[0], FIRST[1], gone[2]), holding(FIRST[0], gone[1], gone[2])
    assert found(here, there) == [
        ("a-value", 1, 1, "deleted in the first only"),
        ("a-value", 2, 2, "deleted in the second only"),
    ]


def test_a_version_that_is_another_one() -> None:
    there = holding(version("a", 8), replace(FIRST[1], schema=FIRST[0].schema), FIRST[2])
    assert found(holding(*FIRST), there) == [
        ("a-value", 1, 1, "it has id 8"),
        ("a-value", 2, 2, "its schema is another one"),
    ]


def test_what_the_first_cannot_distribute_is_told_and_is_no_version_of_the_second_alone() -> None:
    broken = version("a", 1, text="{")
    user = version("b", 5, refers_to="a")
    lost, parses, refers = found(holding(version("a", 4, at=2), broken, user), holding(broken))
    assert lost == ("a-value", 2, 4, "only in the first")
    assert parses[:3] == ("a-value", 1, 1)
    assert parses[3].startswith("schema_does_not_parse: not JSON: ")
    assert refers[:3] == ("b-value", 1, 5)
    assert refers[3].startswith("reference_missing: it refers to a-value version 1, which is")


def test_settings_that_differ() -> None:
    here, there = holding(*FIRST), holding(*FIRST)
    here.compatibility = {"a-value": "FULL", "elsewhere": "NONE"}
    there.compatibility = {"b-value": "NONE", "local-value": "NONE"}
    assert found(here, there) == [
        ("a-value", 0, 0, "compatibility FULL in the first, unset in the second"),
        ("b-value", 0, 0, "compatibility unset in the first, NONE in the second"),
    ]
