from dispatcher.core.model import Policy
from dispatcher.core.steps import CursorMoved, MembersReady, ReadOn
from tests.rig.playbook import Playbook


def test_the_end_of_a_step_moves_positions_wakes_members_and_reads_on() -> None:
    play = Playbook(Policy(span_max=4)).join("c1").produce(b"a", b"a")
    assert play.step.effects[:1] == [MembersReady(["c1"])]  # type: ignore[list-item]
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    play.persists(CursorMoved(1, 1))
    assert [effect for effect in play.step.effects if isinstance(effect, ReadOn)] == []
    assert play.core.read_position == 2


def test_a_read_under_way_that_starts_too_early_is_asked_for_again() -> None:
    play = Playbook(Policy(span_max=4)).join("c1").produce(b"a")
    play.acquire("c1")
    play.restart().join("c1")
    assert play.read_on() == [(0, 4)]
    play.ack("c1", 0)
    assert play.read_on() == [(1, 4)]
