"""Histories of several nodes: fixed seeds, and every seed that ever failed, with its lesson."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from random import Random

import pytest

from gateway.core.routing.ownership import Standing
from tests.sim.nodes.faults import Faults, draw
from tests.sim.nodes.world import World, run

SEEDS = range(12)  # make sim ARGS=--nodes hunts on

# Each lesson has a test of its own, named here.
TAUGHT = [
    257,  # test_a_coordinator_that_moved_is_found_though_no_member_says_so
    447,  # test_a_node_that_is_fenced_asks_whether_the_leader_has_moved
    740560,  # the judge: a member that works has not noticed that its connection broke
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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_node_that_redis_alone_does_not_reach_stops_nobody(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients reach it, so they stayed with it, and others evicted the members that it heard."""
    drawn = draw(Random(seed))
    calm = replace(
        drawn,
        faults=Faults(),
        nodes=2,
        nodes_max=2,
        brokers=2,
        partitions=2,
        consumers=2,
        records=200,
        heartbeat_ms=2_000,
        lock_ms=30_000,
        grace_ms=3_000,
        calm_after_ms=70_000,
    )
    monkeypatch.setattr("tests.sim.nodes.world.draw", lambda _: calm)
    world = World(seed)
    monkeypatch.setattr(
        world.judge, "look_at_owners", lambda *_: None
    )  # two take themselves for it
    lagging: dict[int, int] = {}

    def silent() -> None:
        for process in world.living():
            process.link.silent = process.owners.standing(world.coordinator) is Standing.OWNED
        assert any(process.link.silent for process in world.living())
        lagging.update({at: len(log) for at, log in world.records.items()})

    def look() -> None:
        cursors = {key.partition: at.cursor for key, at in world.redis.store.windows.items()}
        assert all(cursors.get(at, 0) >= end for at, end in lagging.items()), (cursors, lagging)
        lagging.clear()

    def note() -> None:
        lagging.update({at: len(log) for at, log in world.records.items()})

    world.timeline.after(10_000, silent)
    world.timeline.after(30_000, note)
    world.timeline.after(45_000, look)
    world.run()
    assert not lagging
