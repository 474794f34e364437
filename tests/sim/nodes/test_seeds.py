"""Histories of several nodes: fixed seeds, and every seed that ever failed, with its lesson."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from random import Random

import pytest

from tests.sim.nodes.faults import Faults, draw
from tests.sim.nodes.world import World, run

SEEDS = range(12)  # make sim ARGS=--nodes hunts on

# Each lesson has a test of its own, named here.
TAUGHT = [
    257,  # test_a_coordinator_that_moved_is_found_though_no_member_says_so
    447,  # test_a_node_that_is_fenced_asks_whether_the_leader_has_moved
]


def test_seeds() -> None:
    seen: Counter[str] = Counter()
    for seed in (*SEEDS, *TAUGHT):
        try:
            seen += run(seed).seen
        except Exception as failure:
            raise AssertionError(
                f"SEED={seed}: replay with python -m tests.sim --nodes {seed}"
            ) from failure
    # A simulation that never comes to a thing says nothing about it.
    expected = {"Killed", "Paused", "Stopped", "GoesForGood", "Joins", "RedisDown", "RedisFrozen"}
    expected |= {"Silence", "Late", "CutOff", "Disconnected", "Leader", "Coordinator", "Dies"}
    expected |= {
        "Drain",
        "Undrain",
        "Place",
        "Leaves",
        "MembersLost",
        "Partition NOT_LEADER_OR_FOLLOWER",
        "Heartbeat NOT_COORDINATOR",
    }
    assert expected - set(seen) == set()


def test_the_same_seed_gives_the_same_history(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        World(3, verbose=True).run()
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "owners_changed" in said[0]


def test_every_fault_is_on_in_some_histories_and_off_in_others() -> None:
    drawn = [draw(Random(seed)) for seed in range(100)]
    for fault in fields(Faults):
        values = [getattr(options.faults, fault.name) for options in drawn]
        assert 20 < values.count(0.0) < 80, fault.name
    for option in fields(drawn[0]):
        assert len({repr(getattr(options, option.name)) for options in drawn}) > 1, option.name
