"""Levels and modes that a source does not show any more."""

from __future__ import annotations

import pytest

from schema_dist.core.ledger import SettingEntry
from schema_dist.core.model import Reason, SetCompatibility
from schema_dist.core.plan import takes_back
from schema_dist.core.records import CompatibilitySet, ModeSet
from tests.unit.schema_dist.core.test_plan import holding, ours, planned, version


@pytest.mark.parametrize("source", ["listed", "log", "log with tombstones"])
@pytest.mark.parametrize(("lost", "refused_at_all"), [(10, False), (11, True)])
def test_a_source_that_shows_no_setting_any_more_takes_few_back(
    lost: int, source: str, *, refused_at_all: bool
) -> None:
    """A log that was made anew took all of them: it has no record of any."""
    kept = version("a", 1)
    contents, target, ledger = holding(kept), holding(kept), ours(kept)
    contents.recorded = source != "listed"
    target.compatibility = {f"a{at}-value": "FULL" for at in range(1, lost)}
    target.modes = {"a-value": "READONLY"}
    ledger.apply(
        SettingEntry("compatibility", subject, ours=True) for subject in target.compatibility
    )
    ledger.apply([SettingEntry("mode", "a-value", ours=True)])
    if source == "log with tombstones":
        for at, subject in enumerate(target.compatibility):
            contents.apply(CompatibilitySet(subject, None), at)
        contents.apply(ModeSet("a-value", None), lost)
    plan = planned(contents, target, ledger)
    if refused_at_all and source != "log with tombstones":
        assert plan.writes == 0
        assert {refusal.reason for refusal in plan.refusals} == {Reason.REMOVALS}
        assert len(plan.refusals) == lost
    else:
        assert (plan.writes, plan.refusals) == (lost, ())


@pytest.mark.parametrize("recorded", [False, True])
def test_a_log_that_lacks_versions_takes_no_setting_back(*, recorded: bool) -> None:
    """It was made anew, with the first schemas of another registry: a few settings went at once."""
    mine, other = version("a", 5), version("b", 1)
    source, target, ledger = holding(other), holding(mine), ours(mine)
    target.compatibility = {"a-value": "FULL_TRANSITIVE", "": "FULL"}
    ledger.apply([SettingEntry("compatibility", subject, ours=True) for subject in ("a-value", "")])
    if recorded:
        source.apply(CompatibilitySet("a-value", None), 3)
    plan = planned(source, target, ledger)
    taken = [write for wave in plan.waves for write in wave if takes_back(write, target)]
    assert taken == ([SetCompatibility("a-value", None)] if recorded else [])
    refused = {(refusal.subject, refusal.reason) for refusal in plan.refusals}
    assert ("", Reason.UNPROVEN) in refused


def test_other_names_in_the_file_take_no_setting_back() -> None:
    """The versions stayed, and their subject lost its level."""
    mine, other = version("a", 5), version("b", 1)
    source, target, ledger = holding(other), holding(mine), ours(mine)
    source.recorded = False
    ledger.sources[mine.place] = "acme-a-value"
    target.compatibility = {"a-value": "FULL_TRANSITIVE"}
    ledger.apply([SettingEntry("compatibility", "a-value", ours=True)])
    plan = planned(source, target, ledger)
    assert not [write for wave in plan.waves for write in wave if takes_back(write, target)]
    assert [refusal.reason for refusal in plan.refusals] == [Reason.UNPROVEN] * 2
