"""What a node says of the brokers that do not answer it."""

from __future__ import annotations

from gateway.core.routing.reach import Reach
from gateway.routing.limits import REACHED_S, SILENT_S


def test_only_a_silence_that_lasts_is_said() -> None:
    reach = Reach(SILENT_S, REACHED_S)
    reach.look({1: True, 2: False}, 0)
    reach.look({1: True, 2: False}, SILENT_S - 1)
    assert not reach.silent
    reach.look({1: True, 2: False}, SILENT_S)
    assert (set(reach.silent), set(reach.reached)) == ({2}, set())
    reach.look({1: True, 2: False}, REACHED_S)
    assert (set(reach.silent), set(reach.reached)) == ({2}, {1})


def test_one_answer_does_not_end_a_silence_and_one_silence_ends_that_it_is_reached() -> None:
    reach = Reach(SILENT_S, REACHED_S)
    reach.look({1: True, 2: False}, 0)
    reach.look({1: True, 2: False}, REACHED_S)
    reach.look({1: False, 2: True}, 30)
    assert (set(reach.silent), set(reach.reached)) == ({2}, set())
    reach.look({1: True, 2: False}, 35)
    reach.look({1: True, 2: True}, 36)
    reach.look({1: True, 2: True}, 36 + SILENT_S - 1)
    assert (set(reach.silent), set(reach.reached)) == ({2}, set())
    reach.look({1: True, 2: True}, 36 + SILENT_S)
    assert not reach.silent
    reach.look({1: True, 2: True}, 36 + REACHED_S)
    assert reach.reached == {1, 2}


def test_a_broker_that_is_restarted_is_never_both_for_two_nodes() -> None:
    """It goes and comes back for one of them up to 5 s before the other notices."""
    for late_s in range(6):
        one, other = Reach(SILENT_S, REACHED_S), Reach(SILENT_S, REACHED_S)
        for second in range(200):
            one.look({1: not 50 <= second < 100}, second)
            other.look({1: not 50 + late_s <= second < 100 + late_s}, second)
            assert not one.silent & other.reached
            assert not other.silent & one.reached


def test_a_broker_that_upstream_has_no_more_is_forgotten() -> None:
    reach = Reach(SILENT_S, REACHED_S)
    reach.look({1: True, 2: False}, 0)
    reach.look({1: True, 2: False}, REACHED_S)
    reach.look({}, 30)
    assert (set(reach.silent), set(reach.reached)) == (set(), set())
    reach.look({1: True, 2: False}, 31)
    assert (set(reach.silent), set(reach.reached)) == (set(), set()), "it counts anew"
