"""A plan of what changed is the plan of everything: over random histories of the source, the target
and the ledger, the one that followed every change equals the one that is made from nothing.

Subjects and ids are few, so that they collide: references to nothing, in circles and to unfollowed
subjects, ids of several schemas, other people's versions on the target, contexts, tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core.absences import Presence
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.ledger import Ledger, entries_after, entries_before
from schema_dist.core.model import (
    HardDelete,
    Reference,
    Register,
    Schema,
    SchemaId,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SoftDelete,
    SubjectVersion,
    Version,
    Write,
)
from schema_dist.core.plan import Plan, Removals, make_plan, meaning_of
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)
from schema_dist.core.standing import Standing

NAMES = pair_subjects(compile_pattern("{t}-{topic}", {"t": "acme"}), compile_pattern("{topic}.b"))
HERE = [f"acme-{letter}-value" for letter in "abcde"]
THERE = [f"{letter}.b-value" for letter in "abcde"]
CONFIRMED: list[Mapping[SubjectVersion, Presence] | None] = [
    None,
    {},
    {(subject, Version(1)): Presence.GONE for subject in THERE},
    {(subject, Version(1)): Presence.DELETED for subject in THERE},
]
versions = st.integers(1, 2).map(Version)


def of_registry(subjects: list[str]) -> st.SearchStrategy[Event]:
    named = st.sampled_from(subjects)
    references = st.lists(
        st.builds(Reference, st.sampled_from("xy"), named, versions), max_size=2
    ).map(tuple)
    texts = st.sampled_from(['"int"', '"int"', '"long"', '"long"', "{"])
    written = st.builds(
        SchemaVersion,
        subject=named,
        version=versions,
        id=st.integers(1, 4).map(SchemaId),
        schema=st.builds(Schema, st.just("AVRO"), texts, references),
        deleted=st.booleans(),
    )
    return st.one_of(
        st.builds(SchemaWritten, written),
        st.builds(SchemaWritten, written),
        st.builds(SchemaRemoved, named, versions),
        st.builds(SubjectDeleted, named, versions),
        st.builds(SubjectCleared, named),
        st.builds(CompatibilitySet, named | st.just(""), st.sampled_from(["FULL", None])),
        st.builds(ModeSet, named | st.just(""), st.sampled_from(["READONLY", None])),
    )


at_source = of_registry([*HERE, ":.eu:acme-a-value", "other-a-value"])
at_target = of_registry([*THERE, ":.eu:a.b-value"])
Step = tuple[list[Event], list[Event], int, bool]  # of source and target; writes made; read anew
steps: st.SearchStrategy[Step] = st.tuples(
    st.lists(at_source, max_size=4),
    st.lists(at_target, max_size=1),
    st.integers(0, 9),
    st.booleans(),
)


@dataclass(slots=True)
class World:
    follows: frozenset[str]
    recorded: bool
    contexts: bool
    hard: bool
    source: Contents = field(default_factory=Contents)
    target: Contents = field(default_factory=Contents)
    ledger: Ledger = field(default_factory=Ledger)
    at: int = 0

    def happens(self, contents: Contents, events: list[Event], *, anew: bool) -> None:
        """`anew`: a list is read that shows them, not a log."""
        changed = Contents() if anew else contents
        if anew:
            changed.become(contents)
        for event in events:
            self.at += 1
            changed.apply(event, self.at)
        if anew:
            contents.become(changed)

    def standing(self, *, fresh: bool = False) -> Standing:
        source, target = self.source, self.target
        if fresh:
            source, target = rebuilt(source), rebuilt(target)
        wanted = Desired(source, NAMES, lambda subject: subject in self.follows)
        return Standing(wanted, target, self.ledger, hard=self.hard)

    def plan(self, standing: Standing, confirmed: Mapping[SubjectVersion, Presence] | None) -> Plan:
        for _ in standing.catch_up():
            continue
        removals = Removals(
            recorded=self.recorded, confirmed=confirmed, at_once_max=2, hard=self.hard
        )
        return standing.plan(contexts=self.contexts, removals=removals)

    def carry_out(self, plan: Plan, count: int) -> None:
        """The first writes of a plan, as distribution makes them; then the process is killed."""
        self.ledger.apply(plan.adopted[: 2 * count])
        for write in [planned for wave in plan.waves for planned in wave][:count]:
            meaning = source = None
            if isinstance(write, Register):
                meaning = meaning_of(write.wanted)
                source = Desired(self.source, NAMES, bool).source_of(write.wanted.subject)
            self.ledger.apply(entries_before(write, meaning, source))
            self.target.apply(_event(write), self.at)
            self.ledger.apply(entries_after(write))


def rebuilt(contents: Contents) -> Contents:
    """Without a past: indexes, too, are made of what is there now."""
    made = Contents()
    for version in contents.versions():
        made.put(version, contents.order[version.place])
    made.removed, made.unset = set(contents.removed), set(contents.unset)
    made.compatibility, made.modes = dict(contents.compatibility), dict(contents.modes)
    return made


def _event(write: Write) -> Event:
    match write:
        case Register(wanted):
            return SchemaWritten(replace(wanted, deleted=False))
        case SoftDelete(wanted):
            return SchemaWritten(replace(wanted, deleted=True))
        case HardDelete(wanted):
            return SchemaRemoved(*wanted.place)
        case SetCompatibility(subject, level):
            return CompatibilitySet(subject, level)
        case SetMode(subject, mode):
            return ModeSet(subject, mode)


worlds = st.builds(
    World,
    follows=st.frozensets(st.sampled_from([*HERE, "other-a-value"]), min_size=1, max_size=2)
    | st.just(frozenset([*HERE, ":.eu:acme-a-value"])),
    recorded=st.booleans(),
    contexts=st.booleans(),
    hard=st.booleans(),
)


def seen(standing: Standing) -> object:
    wanted = standing.wanted
    return (
        wanted.versions,
        wanted.in_order(wanted.versions),
        wanted.refusals,
        wanted.subjects,
        wanted.at_source,
        wanted.tombstones,
        wanted.unset,
        wanted.left_alone,
        (wanted.compatibility, wanted.modes),
        (standing.in_sync, standing.open),
    )


@given(worlds, st.lists(steps, max_size=12), st.sampled_from(CONFIRMED))
def test_following_changes_plans_what_planning_anew_does(
    world: World, history: list[Step], confirmed: Mapping[SubjectVersion, Presence] | None
) -> None:
    standing = world.standing()
    for of_source, of_target, writes, anew in history:
        world.happens(world.source, of_source, anew=anew)
        world.happens(world.target, of_target, anew=anew)
        fresh = world.standing(fresh=True)
        plan = world.plan(standing, confirmed)
        assert plan == world.plan(fresh, confirmed)
        assert seen(standing) == seen(fresh)
        world.carry_out(plan, writes)


@given(worlds, st.lists(steps, max_size=8))
def test_nothing_that_is_not_in_sync_escapes_a_plan(world: World, history: list[Step]) -> None:
    """A plan of every place there is plans no more than the plan of the open places."""
    standing = world.standing()
    for of_source, of_target, writes, anew in history:
        world.happens(world.source, of_source, anew=anew)
        world.happens(world.target, of_target, anew=anew)
        plan = world.plan(standing, CONFIRMED[2])
        wanted = standing.wanted
        everywhere = {*wanted.at_source, *world.target.order, *world.ledger.versions}
        removals = Removals(
            recorded=world.recorded, confirmed=CONFIRMED[2], at_once_max=2, hard=world.hard
        )
        assert plan == make_plan(
            wanted,
            world.target,
            world.ledger,
            places=everywhere,
            contexts=world.contexts,
            removals=removals,
        )
        world.carry_out(plan, writes)
