"""The plan: refused collisions, removals, the order of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core.absences import Presence
from schema_dist.core.compare import fingerprint
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Desired
from schema_dist.core.ledger import Ledger, SettingEntry, VersionEntry
from schema_dist.core.model import (
    HardDelete,
    Reason,
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
from schema_dist.core.plan import Plan, Removals
from schema_dist.core.standing import Standing

SAME = pair_subjects(compile_pattern("{topic}"), compile_pattern("{topic}"))


def version(
    subject: str,
    number: int,
    at: int = 1,
    *,
    text: str = "",
    refers_to: str = "",
    deleted: bool = False,
) -> SchemaVersion:
    references = (Reference("r", f"{refers_to}-value", Version(1)),) if refers_to else ()
    return SchemaVersion(
        subject=f"{subject}-value",
        version=Version(at),
        id=SchemaId(number),
        schema=Schema(
            "AVRO", text or f'{{"type":"fixed","name":"n{number}","size":1}}', references
        ),
        deleted=deleted,
    )


def holding(*versions: SchemaVersion) -> Contents:
    contents = Contents()
    for at, held in enumerate(versions):
        contents.put(held, at)
    return contents


def ours(*versions: SchemaVersion) -> Ledger:
    ledger = Ledger()
    ledger.apply(
        VersionEntry(held.place, (held.id, fingerprint(held.schema)), held.subject)
        for held in versions
    )
    return ledger


def planned(
    source: Contents,
    target: Contents,
    ledger: Ledger | None = None,
    *,
    contexts: bool = False,
    follows: str = "",
    hard: bool = True,
    confirmed: Mapping[SubjectVersion, Presence] | None = None,
    ask: bool = True,
) -> Plan:
    standing = Standing(
        Desired(source, SAME, lambda subject: subject.startswith(follows)),
        target,
        Ledger() if ledger is None else ledger,
        hard=hard,
    )
    for _ in standing.catch_up():
        continue
    removals = Removals(
        recorded=source.recorded,
        confirmed={} if ask and confirmed is None else confirmed,
        hard=hard,
    )
    return standing.plan(contexts=contexts, removals=removals)


def waves(plan: Plan) -> list[list[Write]]:
    return [list(wave) for wave in plan.waves]


def refused(plan: Plan) -> list[tuple[str, Reason]]:
    return [(refusal.subject, refusal.reason) for refusal in plan.refusals]


def test_nothing_to_do() -> None:
    a = version("a", 1)
    plan = planned(holding(a), holding(a), ours(a))
    assert (plan.waves, plan.refusals, plan.adopted, plan.in_sync) == ((), (), (), 1)


def test_what_is_there_already_is_adopted() -> None:
    a = version("a", 1)
    plan = planned(holding(a), holding(a))
    assert plan.adopted == (VersionEntry(a.place, (a.id, fingerprint(a.schema)), a.subject),)
    assert (plan.writes, plan.in_sync) == (0, 1)


def test_what_somebody_made_the_wanted_one_is_adopted_anew() -> None:
    before, now = version("a", 1, text='"int"'), version("a", 1)
    plan = planned(holding(now), holding(now), ours(before))
    assert plan.adopted == (
        VersionEntry(now.place, (now.id, fingerprint(now.schema)), now.subject),
    )
    assert plan.writes == 0


def test_what_both_have_no_more_leaves_the_ledger() -> None:
    kept, gone = version("b", 1), version("a", 2)
    plan = planned(holding(kept), holding(kept), ours(kept, gone))
    assert (plan.adopted, plan.writes) == ((VersionEntry(gone.place, None),), 0)


def test_references_before_users_and_a_wave_by_subject_and_version() -> None:
    a, a2, b = version("a", 1, refers_to="b"), version("a", 2, at=2), version("b", 3)
    free = version("free", 4)
    plan = planned(holding(a, a2, b, free), Contents())
    assert waves(plan) == [[Register(a2), Register(b), Register(free)], [Register(a)]]
    several = [version("s", at, at=at) for at in (10, 9, 1)]
    assert waves(planned(holding(*several), Contents())) == [
        [Register(added) for added in several[::-1]]
    ]


def test_soft_deletes_of_users_before_what_they_refer_to() -> None:
    a, b = version("a", 1, refers_to="b"), version("b", 2)
    gone_a, gone_b = replace(a, deleted=True), replace(b, deleted=True)
    plan = planned(holding(gone_a, gone_b), holding(a, b), ours(a, b))
    assert waves(plan) == [[SoftDelete(gone_a)], [SoftDelete(gone_b)]]
    fresh = planned(holding(gone_a, gone_b), Contents())
    assert waves(fresh) == [
        [Register(gone_b)],
        [Register(gone_a)],
        [SoftDelete(gone_a)],
        [SoftDelete(gone_b)],
    ]


def test_what_a_live_version_refers_to_is_soft_deleted_behind_it() -> None:
    user, gone = version("a", 1, refers_to="b"), version("b", 2, deleted=True)
    assert waves(planned(holding(user, gone), Contents())) == [
        [Register(gone)],
        [Register(user)],
        [SoftDelete(gone)],
    ]


def test_hard_deletes_of_users_before_what_they_refer_to() -> None:
    a, b = version("a", 1, refers_to="b"), version("b", 2)
    source = holding(a, b, version("c", 3))
    source.remove(a.place)
    source.remove(b.place)
    plan = planned(source, holding(a, b, version("c", 3)), ours(a, b))
    assert waves(plan) == [
        [SoftDelete(a)],
        [HardDelete(a), SoftDelete(b)],
        [HardDelete(b)],
    ]


def test_a_version_that_returns_is_registered_again() -> None:
    a = version("a", 1)
    plan = planned(holding(a), holding(replace(a, deleted=True)), ours(a))
    assert waves(plan) == [[Register(a)]]


@pytest.mark.parametrize(
    ("there", "reason", "says"),
    [
        (version("other", 1, text='"int"'), Reason.ID_TAKEN, "of another schema, other-value"),
        (version("other", 1, text='"int"', deleted=True), Reason.ID_TAKEN, "other-value version 1"),
        (version("a", 1, text='"int"'), Reason.VERSION_TAKEN, "this version with another schema"),
        (version("a", 7), Reason.VERSION_TAKEN, "this version under id 7"),
        (version("a", 1, text="{not JSON"), Reason.VERSION_TAKEN, "with another schema"),
    ],
)
def test_collisions_are_refused_and_what_refers_to_them(
    there: SchemaVersion, reason: Reason, says: str
) -> None:
    a, user, fine = version("a", 1), version("u", 2, refers_to="a"), version("f", 3)
    plan = planned(holding(a, user, fine), holding(there))
    assert refused(plan) == [("a-value", reason), ("u-value", Reason.REFERENCE)]
    assert says in plan.refusals[0].detail
    assert waves(plan) == [[Register(fine)]]


def test_two_schemas_of_the_source_under_one_id() -> None:
    plan = planned(holding(version("a", 1), version("b", 1, text='"int"')), Contents())
    assert refused(plan) == [("b-value", Reason.ID_TAKEN)]
    both = planned(holding(version("a", 1), version("b", 1)), Contents())
    assert (both.refusals, both.writes) == ((), 2)


def test_ids_of_contexts_are_apart_where_the_registry_keeps_them_apart() -> None:
    there = holding(version("a", 1, text='"int"'))
    here = holding(version(":.eu:b", 1), version("a", 1, text='"int"'))
    assert planned(here, there, contexts=True).refusals == ()
    assert refused(planned(here, there)) == [(":.eu:b-value", Reason.ID_TAKEN)]


def test_only_what_keyway_wrote_is_removed() -> None:
    kept, mine, theirs = version("a", 1), version("a", 2, at=2), version("a", 3, at=3)
    source = holding(kept)
    source.removed = {mine.place, theirs.place}
    plan = planned(source, holding(kept, mine, theirs), ours(kept, mine))
    assert waves(plan) == [[SoftDelete(mine)], [HardDelete(mine)]]
    assert refused(plan) == [("a-value", Reason.NOT_OURS)]
    changed = replace(mine, id=SchemaId(9))
    plan = planned(source, holding(kept, changed), ours(kept, mine))
    assert plan.writes == 0
    assert refused(plan) == [("a-value", Reason.NOT_OURS)]


def test_subjects_that_are_not_followed_are_left_alone() -> None:
    a, b = version("a", 1), version("b", 2)
    source = holding(a, b)
    source.compatibility = {"b-value": "NONE"}
    ledger = ours(a, b)
    ledger.apply([SettingEntry("compatibility", "b-value", ours=True)])
    target = holding(a, b)
    target.compatibility = {"b-value": "FULL"}
    plan = planned(source, target, ledger, follows="a")
    assert (plan.writes, plan.refusals) == (0, ())


MANY = [version("a", at, at=at) for at in range(1, 102)]  # one more than may go at once
GONE = {lost.place: Presence.GONE for lost in MANY}


def test_as_many_as_may_go_at_once_go() -> None:
    kept, going = version("b", 9_999), MANY[1:]
    plan = planned(holding(kept), holding(kept, *going), ours(kept, *going), confirmed=GONE)
    assert plan.writes == 2 * len(going)


def test_one_that_is_not_confirmed_stays_beside_one_that_is() -> None:
    kept, first, second = version("b", 9), version("a", 1), version("a", 2, at=2)
    for gone, stays in ((first, second), (second, first)):
        plan = planned(
            holding(kept),
            holding(kept, first, second),
            ours(kept, first, second),
            confirmed={gone.place: Presence.GONE},
        )
        assert waves(plan) == [[SoftDelete(gone)], [HardDelete(gone)]]
        assert plan.unconfirmed == (stays,)


def test_a_source_that_lost_its_log_empties_no_target() -> None:
    target, ledger = holding(*MANY), ours(*MANY)
    plan = planned(holding(version("b", 9_999)), target, ledger, confirmed=GONE)
    assert {refusal.reason for refusal in plan.refusals} == {Reason.REMOVALS}
    assert waves(plan) == [[Register(version("b", 9_999))]]
    plan = planned(Contents(), holding(MANY[0]), ours(MANY[0]), confirmed=GONE)
    assert refused(plan) == [("a-value", Reason.REMOVALS)]
    proven = Contents()
    proven.removed = {lost.place for lost in MANY}
    assert planned(proven, target, ledger).writes == 2 * len(MANY)


def test_a_source_that_lost_its_contents_takes_back_no_setting() -> None:
    ledger = Ledger()
    ledger.apply([SettingEntry("compatibility", "a-value", ours=True)])
    target = Contents()
    target.compatibility = {"a-value": "FULL"}
    assert planned(Contents(), target, ledger).writes == 0


def test_a_version_without_a_tombstone_goes_once_it_stayed_away_by_name() -> None:
    kept, gone = version("a", 3), version("a", 2, at=2)
    target, ledger = holding(kept, gone), ours(kept, gone)
    plan = planned(holding(kept), target, ledger)
    assert (plan.writes, plan.refusals, plan.unconfirmed) == (0, (), (gone,))
    asked = {gone.place: Presence.DELETED}  # the list lacks it, and by name it is there
    assert planned(holding(kept), target, ledger, confirmed=asked).unconfirmed == (gone,)
    asked = {gone.place: Presence.GONE}
    plan = planned(holding(kept), target, ledger, confirmed=asked)
    assert waves(plan) == [[SoftDelete(gone)], [HardDelete(gone)]]
    nobody = planned(holding(kept), target, ledger, ask=False)
    assert (nobody.writes, refused(nobody)) == (0, [("a-value", Reason.UNPROVEN)])


def test_a_soft_delete_that_only_a_list_tells_is_confirmed_and_bounded() -> None:
    kept, gone = version("b", 999), replace(MANY[0], deleted=True)
    asked = {lost.place: Presence.DELETED for lost in MANY}
    source = holding(kept, gone)
    source.recorded = False
    target, ledger = holding(kept, MANY[0]), ours(kept, MANY[0])
    plan = planned(source, target, ledger)
    assert (plan.writes, plan.refusals, plan.unconfirmed) == (0, (), (MANY[0],))
    assert waves(planned(source, target, ledger, confirmed=asked)) == [[SoftDelete(gone)]]
    source = holding(kept, *(replace(lost, deleted=True) for lost in MANY))
    assert planned(source, holding(kept, *MANY), ours(kept, *MANY)).writes == len(MANY)  # recorded
    source.recorded = False
    plan = planned(source, holding(kept, *MANY), ours(kept, *MANY), confirmed=asked)
    assert plan.writes == 0
    assert {refusal.reason for refusal in plan.refusals} == {Reason.REMOVALS}


def test_hard_deletes_are_off_by_default() -> None:
    assert not Removals().hard
    a, b = version("a", 1), version("b", 2)
    source = holding(a)
    source.removed = {b.place}
    plan = planned(source, holding(a, b), ours(a, b), hard=False)
    assert waves(plan) == [[SoftDelete(b)]]
    after = planned(source, holding(a, replace(b, deleted=True)), ours(a, b), hard=False)
    assert (after.writes, after.refusals, after.unconfirmed) == (0, (), ())
    instead = planned(holding(version("a", 3)), holding(a), ours(a), hard=False)
    assert (instead.writes, refused(instead)) == (0, [("a-value", Reason.HARD_DELETES_OFF)])


def test_another_schema_in_the_place_of_ours_takes_two_plans() -> None:
    old, new = version("a", 1), version("a", 2)
    plan = planned(holding(new), holding(old), ours(old))
    assert waves(plan) == [[SoftDelete(old)], [HardDelete(old)]]
    assert waves(planned(holding(new), Contents(), ours(old))) == [[Register(new)]]


def test_an_id_that_becomes_free_takes_two_plans() -> None:
    old, new = version("old", 1, text='"int"'), version("new", 1)
    user = version("user", 2, refers_to="new")
    source = holding(new, user)
    source.removed = {old.place}
    plan = planned(source, holding(old), ours(old))
    assert waves(plan) == [[SoftDelete(old)], [HardDelete(old)]]
    assert plan.refusals == ()
    assert waves(planned(source, Contents(), Ledger())) == [[Register(new)], [Register(user)]]


def test_an_id_that_one_of_two_holders_keeps_is_taken() -> None:
    going, stays = version("a", 1, text='"int"'), version("z", 1, text='"int"')
    source = holding(version("new", 1))
    source.removed = {going.place}
    plan = planned(source, holding(going, stays), ours(going))
    assert refused(plan) == [("new-value", Reason.ID_TAKEN)]
    assert "z-value version 1" in plan.refusals[0].detail


def test_one_of_many_is_replaced() -> None:
    """Only what differs counts as replaced."""
    here = [version("a", at, at=at) for at in range(1, 61)]
    other = version("a", 99, at=1)
    plan = planned(holding(other, *here[1:]), holding(*here), ours(*here))
    assert (waves(plan), plan.refusals) == ([[SoftDelete(here[0])], [HardDelete(here[0])]], ())


def test_settings_are_set_and_taken_back_if_ours() -> None:
    a = version("a", 1)
    source, target, ledger = holding(a), Contents(), Ledger()
    source.compatibility = {"a-value": "FULL", "": "NONE"}
    source.modes = {"a-value": "READONLY"}
    target.compatibility = {"local-value": "NONE", "back-value": "NONE"}
    target.modes = {"back-value": "IMPORT"}
    ledger.apply(
        [
            SettingEntry("compatibility", "back-value", ours=True),
            SettingEntry("mode", "back-value", ours=True),
            SettingEntry("mode", "done-value", ours=True),
            SettingEntry("compatibility", "done-value", ours=True),
        ]
    )
    plan = planned(source, target, ledger)
    assert waves(plan) == [
        [
            SetCompatibility("", "NONE"),
            Register(a),
            SetCompatibility("back-value", None),
            SetMode("back-value", None),
        ],
        [SetCompatibility("a-value", "FULL"), SetMode("a-value", "READONLY")],
    ]
    assert plan.adopted == (
        SettingEntry("compatibility", "done-value", ours=False),
        SettingEntry("mode", "done-value", ours=False),
    )


def test_a_registry_that_was_restored_from_a_backup_takes_nothing_away() -> None:
    """It lacks the last versions, by name too, and gives their ids once more."""
    held = [version("a", at, at=at) for at in range(1, 11)]
    lost = held[7:]
    gone = {known.place: Presence.GONE for known in lost}
    target, ledger = holding(*held), ours(*held)
    new = [
        version("new", at, at=at, text=f'{{"type":"fixed","name":"m{at}","size":1}}')
        for at in range(8, 20)
    ]
    for since in ([], new[:1], new):
        plan = planned(holding(*held[:7], *since), target, ledger, confirmed=gone)
        assert not [
            write for wave in plan.waves for write in wave if not isinstance(write, Register)
        ]
        found = [refusal.version for refusal in plan.refusals if refusal.reason is Reason.UNPROVEN]
        assert found == [known.version for known in lost]
    # One subject's version is gone, another one still has the schema; ids went on otherwise.
    other = holding(*held[:7], version("b", 8), version("c", 30))
    plan = planned(other, target, ledger, confirmed=gone)
    assert {
        write.place for wave in plan.waves for write in wave if isinstance(write, SoftDelete)
    } == set(gone)


def test_an_id_that_another_schema_has_too_proves_nothing() -> None:
    """A registry gives an id to one schema."""
    gone, same, other = version("a", 8), version("b", 8), version("c", 8, text='"int"')
    confirmed = {gone.place: Presence.GONE}
    for held, proven in (((same,), True), ((same, other), False), ((other, same), False)):
        plan = planned(holding(*held), holding(gone), ours(gone), confirmed=confirmed)
        goes = any(isinstance(write, SoftDelete) for wave in plan.waves for write in wave)
        assert goes is proven


@pytest.mark.parametrize("count", [10, 11, 60])
def test_another_registry_with_the_same_subjects_deletes_nothing(count: int) -> None:
    """The primary was moved: the same schemas have other ids there."""
    here = [version("a", at, at=at) for at in range(1, count + 1)]
    there = [replace(known, id=SchemaId(known.id + 100)) for known in here]
    plan = planned(holding(*there), holding(*here), ours(*here))
    if count == 10:
        assert plan.writes == 20
        return
    assert plan.writes == 0
    assert {refusal.reason for refusal in plan.refusals} == {Reason.REMOVALS}
    tombstones = holding()
    for known in here:
        tombstones.remove(known.place)
    assert planned(tombstones, holding(*here), ours(*here)).writes == 2 * count


@pytest.mark.parametrize("proof", ["confirmed", "recorded"])
def test_other_names_in_the_configuration_remove_nothing(proof: str) -> None:
    """The source's `orders` was `acme-orders` at the target, and is `orders` now: no subject
    `acme-orders` was ever at the source, so that it is not there proves nothing.
    """
    old = version("acme-orders", 1)
    ledger = Ledger()
    ledger.apply([VersionEntry(old.place, (old.id, fingerprint(old.schema)), "orders")])
    source = holding(version("orders", 1), version("z", 9))
    if proof == "recorded":
        source.removed.add(old.place)
    plan = planned(source, holding(old), ledger, confirmed={old.place: Presence.GONE})
    assert not [write for wave in plan.waves for write in wave if not isinstance(write, Register)]
    (refusal,) = (refusal for refusal in plan.refusals if refusal.subject == old.subject)
    assert refusal.reason == Reason.UNPROVEN
    assert refusal.detail.startswith("it came from orders, ")
