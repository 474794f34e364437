"""Batches that are too large when decompressed: given up, by whom, and the consequences."""

from __future__ import annotations

import pytest

from dispatcher.core.life.commands import Answer, Command, Tell
from dispatcher.core.life.life import WindowLife
from dispatcher.core.model import PoisonPolicy, Policy, RecordsRead
from dispatcher.core.steps import ReadOn, Snapshot
from tests.rig.life_playbook import MEMBERS, NOW_MS, T1, LifePlay, records


def too_large(life: WindowLife, start: int, end: int, now_ms: int) -> list[Command]:
    return life.given_up.too_large(life.core, start, end, now_ms)


def given_up(start: int, end: int) -> list[Tell]:
    return [Tell(RecordsRead(start, end, [], [], NOW_MS))]


@pytest.mark.parametrize("exhausted", PoisonPolicy)
def test_the_policy_for_exhausted_records_decides(exhausted: PoisonPolicy) -> None:
    """There is nothing to write to a dead-letter topic: that waits for an operator, too."""
    life = LifePlay(Policy(exhausted=exhausted)).up().life
    drops = exhausted is PoisonPolicy.DROP
    assert too_large(life, 4, 7, NOW_MS) == (given_up(4, 7) if drops else [])
    life.retune(Policy(exhausted=PoisonPolicy.DROP))
    assert too_large(life, 4, 7, NOW_MS) == given_up(4, 7)
    life.retune(Policy())
    assert too_large(life, 4, 7, NOW_MS) == []


def test_only_the_read_position_counts() -> None:
    life = LifePlay(Policy(exhausted=PoisonPolicy.DROP)).up().life
    assert too_large(life, 3, 7, NOW_MS) == []
    assert too_large(life, 5, 7, NOW_MS) == []
    life.close()
    assert too_large(life, 4, 7, NOW_MS) == []


def test_an_operator_gives_one_batch_up_and_reading_goes_on_behind_it() -> None:
    play = LifePlay().up()
    play.life.given_up.by_operator(4, 7)
    handled = play.life.handle(RecordsRead(4, 7, [], [], NOW_MS), T1)
    assert any(isinstance(command, Answer) for command in handled.commands)
    assert play.life.core is not None
    assert play.life.core.read_position == 7
    assert play.life.core.cursor == 0, "the records before it are not given up"
    assert too_large(play.life, 7, 9, NOW_MS) == [], "the next one is another decision"
    play.does(play.life.records_read(records(7, 9), 0))
    assert play.life.core.read_position == 9


def test_a_batch_longer_than_the_span_is_given_up_in_parts() -> None:
    play = LifePlay(Policy(span_max=6)).up()
    play.life.given_up.by_operator(4, 20)
    play.life.handle(RecordsRead(4, 20, [], [], NOW_MS), T1)
    assert play.life.core is not None
    assert play.life.core.read_position == 6, "the span is full"
    assert too_large(play.life, 6, 20, NOW_MS) == given_up(6, 20), "without another decision"


def test_what_was_given_up_before_a_restart_is_not_asked_about_again() -> None:
    play = LifePlay()
    play.life.start()
    snapshot = Snapshot(2, [(4, 6)])
    play.does(play.life.loaded(Policy(), snapshot, MEMBERS, NOW_MS, fence=7, origin=3))
    play.does(play.life.records_read(records(2, 4), 0))
    assert too_large(play.life, 4, 8, NOW_MS) == [], "not all of it"
    assert too_large(play.life, 4, 7, NOW_MS) == given_up(4, 7)
    play.does(too_large(play.life, 4, 7, NOW_MS))
    assert play.life.core is not None
    assert play.life.core.read_position == 7


def test_reading_goes_on_at_once() -> None:
    play = LifePlay(Policy(exhausted=PoisonPolicy.DROP)).up()
    told = play.does(too_large(play.life, 4, 7, NOW_MS))
    assert [effect.position for effect in [*told, *play.write()] if isinstance(effect, ReadOn)] == [
        7
    ]
