"""Changes whose effect is at another place than their own."""

from __future__ import annotations

from collections.abc import Callable

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.ledger import Ledger
from schema_dist.core.model import Place, Reference, Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.plan import Plan, Removals
from schema_dist.core.standing import Standing

SAME = pair_subjects(compile_pattern("{topic}"), compile_pattern("{topic}"))


def version(subject: str, number: int, *refers_to: str) -> SchemaVersion:
    references = tuple(Reference(name, name, Version(1)) for name in refers_to)
    schema = Schema("AVRO", f'{{"type":"fixed","name":"n{number}","size":1}}', references)
    return SchemaVersion(subject=subject, version=Version(1), id=SchemaId(number), schema=schema)


def place(subject: str) -> Place:
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

    def plan(self) -> tuple[set[Place], Plan]:
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
