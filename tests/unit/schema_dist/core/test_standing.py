"""Changes whose effect is at another place than their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core.compare import fingerprint
from schema_dist.core.contents import SETTINGS, Contents
from schema_dist.core.desired import Desired
from schema_dist.core.ledger import Ledger, VersionEntry
from schema_dist.core.model import (
    Reference,
    Schema,
    SchemaId,
    SchemaVersion,
    SubjectVersion,
    Version,
)
from schema_dist.core.plan import Plan, Removals
from schema_dist.core.standing import Standing

SAME = pair_subjects(compile_pattern("{topic}"), compile_pattern("{topic}"))


def version(subject: str, number: int, *refers_to: str) -> SchemaVersion:
    references = tuple(Reference(name, name, Version(1)) for name in refers_to)
    schema = Schema("AVRO", f'{{"type":"fixed","name":"n{number}","size":1}}', references)
    return SchemaVersion(subject=subject, version=Version(1), id=SchemaId(number), schema=schema)


def place(subject: str) -> SubjectVersion:
    return subject, Version(1)


class Followed:
    """The source's changes are followed, and each plan is that of a fresh start."""

    def __init__(self, *, only: str = "") -> None:
        self.source, self.target = Contents(), Contents()
        self._follows: Callable[[str], bool] = lambda subject: subject.startswith(only)
        self._standing = self._fresh()

    def _fresh(self) -> Standing:
        wanted = Desired(self.source, SAME, self._follows)
        return Standing(wanted, self.target, Ledger(), hard=False)

    def plan(self) -> tuple[set[SubjectVersion], Plan]:
        plans = []
        for standing in (self._standing, self._fresh()):
            for _ in standing.catch_up():
                continue
            plans.append(standing.plan(contexts=False, removals=Removals()))
        assert plans[0] == plans[1]
        return set(self._standing.wanted.versions), plans[0]


def test_what_was_brought_along_goes_with_the_last_that_refers_to_it() -> None:
    followed = Followed(only="a")
    followed.source.put(version("z-value", 1), 1)
    followed.source.put(version("y-value", 2, "z-value"), 2)
    followed.source.put(version("a-value", 3, "y-value"), 3)
    assert followed.plan()[0] == {place("a-value"), place("y-value"), place("z-value")}
    followed.source.put(version("a-value", 4), 4)
    assert followed.plan()[0] == {place("a-value")}


def test_a_circle_that_closes_later_is_refused_until_it_opens() -> None:
    followed = Followed()
    followed.source.put(version("a-value", 1), 1)
    followed.source.put(version("b-value", 2, "a-value"), 2)
    followed.source.put(version("c-value", 3, "b-value"), 3)
    assert len(followed.plan()[0]) == 3
    followed.source.put(version("a-value", 1, "b-value"), 4)
    assert followed.plan()[0] == set()
    followed.source.put(version("a-value", 1), 5)
    assert len(followed.plan()[0]) == 3


def test_a_stranger_s_version_is_told_once_its_subject_is_distributed() -> None:
    followed = Followed()
    followed.target.put(
        SchemaVersion(
            subject="a-value", version=Version(2), id=SchemaId(9), schema=Schema("AVRO", '"int"')
        ),
        1,
    )
    assert followed.plan()[1].refusals == ()
    followed.source.put(version("a-value", 1), 1)
    assert [refusal.version for refusal in followed.plan()[1].refusals] == [2]
    followed.source.remove(place("a-value"))
    assert followed.plan()[1].refusals == ()


class Compared:
    """A source, a target and a ledger, and where the target stands."""

    def __init__(self, *, hard: bool = False, only: str = "") -> None:
        self.source, self.target, self.ledger = Contents(), Contents(), Ledger()
        self.wanted = Desired(self.source, SAME, lambda subject: subject.startswith(only))
        self.standing = Standing(self.wanted, self.target, self.ledger, hard=hard)

    def written(self, *versions: SchemaVersion) -> None:
        """By Keyway, to the target."""
        for at, each in enumerate(versions):
            self.target.put(each, at)
        self.note(*versions)

    def note(self, *versions: SchemaVersion) -> None:
        entries = [
            VersionEntry(each.place, (each.id, fingerprint(each.schema)), each.subject)
            for each in versions
        ]
        self.ledger.apply(entries)

    def open(self) -> set[SubjectVersion]:
        for _ in self.standing.catch_up():
            continue
        return self.standing.open

    def follows(self) -> bool:
        return self.standing.follows(self.wanted, self.target, self.ledger)


def test_a_plan_looks_only_at_what_is_not_in_sync() -> None:
    """With 200,000 versions, a new one costs what it costs with ten."""
    compared = Compared()
    done, fresh = version("a-value", 1), version("b-value", 2)
    compared.source.put(done, 1)
    compared.source.put(fresh, 2)
    compared.written(done)
    assert compared.open() == {place("b-value")}
    assert compared.standing.in_sync == {place("a-value")}


def test_what_the_ledger_has_noted_since_counts() -> None:
    compared = Compared()
    adopted = version("a-value", 1)
    compared.source.put(adopted, 1)
    compared.target.put(adopted, 1)
    assert compared.open() == {place("a-value")}, "somebody else may have written it"
    compared.note(adopted)
    compared.standing.plan(contexts=False, removals=Removals())
    assert (compared.standing.open, compared.standing.in_sync) == (set(), {place("a-value")})


def test_a_stranger_s_subject_that_is_not_distributed_is_nobody_s_business() -> None:
    compared = Compared(only="b")
    compared.target.put(version("a-value", 1), 1)
    assert compared.open() == set()


@pytest.mark.parametrize("hard", [False, True])
def test_our_soft_deleted_version_is_done_unless_it_may_be_deleted_for_good(*, hard: bool) -> None:
    compared = Compared(hard=hard)
    compared.written(replace(version("a-value", 1), deleted=True))
    assert compared.open() == ({place("a-value")} if hard else set())


def test_a_soft_deleted_version_that_somebody_changed_is_not_done() -> None:
    compared = Compared()
    compared.written(replace(version("a-value", 1), deleted=True))
    compared.target.put(replace(version("a-value", 7), deleted=True), 2)
    assert compared.open() == {place("a-value")}


def test_settings_are_no_version_that_could_be_open() -> None:
    compared = Compared()
    compared.source.put(version("a-value", 1), 1)
    assert compared.open() == {place("a-value")}
    compared.standing._look([("a-value", SETTINGS), place("a-value")])
    assert compared.standing.open == {place("a-value")}
    compared.written(version("a-value", 1))
    compared.standing._look([("a-value", SETTINGS), place("a-value")])
    assert compared.standing.open == set()


def test_it_goes_on_for_the_very_contents_that_it_compares() -> None:
    """A log that is read anew, or a ledger that is loaded anew, is another object."""
    compared, other = Compared(), Compared()
    compared.open()
    other.open()
    assert compared.follows()
    mine = (compared.wanted, compared.target, compared.ledger)
    theirs = (other.wanted, other.target, other.ledger)
    for at in range(3):
        mixed = [theirs[part] if part == at else mine[part] for part in range(3)]
        assert not compared.standing.follows(*mixed)  # type: ignore[arg-type]


@pytest.mark.parametrize("side", ["source", "target"])
def test_more_changes_than_are_remembered_need_another_one(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr("schema_dist.core.contents.JOURNAL_MAX", 2)
    compared = Compared()
    compared.open()
    assert compared.follows()
    for number in range(1, 6):
        getattr(compared, side).put(version("a-value", number), number)
    assert compared.standing.is_behind is None
    assert not compared.follows()


def test_others_have_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schema_dist.core.standing.SLICE_PLACES", 2)
    compared = Compared()
    for number in range(1, 8):
        compared.target.put(version(f"{number}-value", number), number)
    assert len(list(compared.standing.catch_up())) >= 4
