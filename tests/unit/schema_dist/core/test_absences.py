"""An absence counts once a version stayed away by name."""

from __future__ import annotations

import pytest

from schema_dist.core.absences import Absences, Presence
from schema_dist.core.model import SubjectVersion, Version

A: SubjectVersion = ("a-value", Version(1))
B: SubjectVersion = ("b-value", Version(1))
GONE, DELETED, LIVE = Presence.GONE, Presence.DELETED, Presence.LIVE


def after(*said: Presence | None, every_ms: int = 20_000, from_ms: int = 0) -> Absences:
    """The answers about A, from `from_ms` on."""
    absences = Absences()
    absences.ask_for([A])
    for at, answer in enumerate(said):
        absences.answered(A, answer, from_ms + at * every_ms)
    return absences


@pytest.mark.parametrize("presence", [GONE, DELETED])
def test_four_answers_in_a_row_over_a_minute(presence: Presence) -> None:
    assert after(presence, presence, presence, every_ms=30_000).confirmed(60_000) == {}
    assert after(*[presence] * 4, every_ms=19_999).confirmed(60_000) == {}
    assert after(*[presence] * 4).confirmed(60_000) == {A: presence}
    since_boot = after(*[presence] * 4, every_ms=19_999, from_ms=10**9)
    assert since_boot.confirmed(10**9 + 60_000) == {}


@pytest.mark.parametrize("between", [LIVE, DELETED, None])
def test_another_answer_or_none_begins_anew(between: Presence | None) -> None:
    said = [GONE, GONE, GONE, between, GONE, GONE, GONE]
    assert after(*said).confirmed(120_000) == {}
    assert after(*said, GONE).confirmed(140_000) == {A: GONE}


def test_a_live_version_is_never_absent() -> None:
    assert after(*[LIVE] * 10).confirmed(180_000) == {}


def test_old_answers_say_nothing() -> None:
    assert after(*[GONE] * 4).confirmed(60_000 + 120_000) == {A: GONE}
    assert after(*[GONE] * 4).confirmed(60_000 + 120_001) == {}
    assert after(*[GONE] * 4, every_ms=120_000).confirmed(360_000) == {A: GONE}
    assert after(GONE, GONE, every_ms=120_001).confirmed(120_001) == {}


def test_only_the_asked_places_are_remembered() -> None:
    absences = after(*[GONE] * 4)
    absences.answered(B, GONE, 0)
    absences.ask_for([A, B])
    assert absences.confirmed(60_000) == {A: GONE}
    absences.ask_for([B])
    absences.ask_for([A, B])
    assert absences.confirmed(60_000) == {}
    assert absences.asked_for == (A, B)
