"""The simulation's smoke set: fixed seeds, and every seed that ever failed, with what it taught."""

from __future__ import annotations

from typing import get_args

import pytest

from dispatcher.core.model import Change, Effect, Event, Notice, Noticed
from tests.sim.world import World, run

CHUNK = 25
SEEDS = range(325)

# What failing seeds taught. A seed stands for its story only as long as the draw stays as it is, so
# each lesson also has a test of its own, named here.
TAUGHT = [
    23,  # test_no_run_after_a_restart_until_the_earlier_lease_ends
    620,  # test_keys_that_waited_for_a_reread_go_on_when_the_last_lease_is_settled_unread
    997,  # test_an_earlier_record_goes_out_when_the_lock_of_a_later_one_ends
    10_112,  # test_an_earlier_session_never_settles_a_later_attempt
]


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run(seed)
        except AssertionError as failure:
            raise AssertionError(
                f"SEED={seed}: replay with python -m tests.sim {seed}"
            ) from failure


@pytest.mark.parametrize("seed", TAUGHT)
def test_seeds_that_failed_once(seed: int) -> None:
    run(seed)


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in (3, 4, 5):
        assert run(seed).digest() == run(seed).digest()
    assert run(3).digest() != run(4).digest()


def test_every_event_change_effect_and_notice_occurs() -> None:
    """A simulation that never comes to a thing says nothing about it."""
    seen: dict[str, int] = {}
    for seed in range(30):
        world: World = run(seed)
        for kind, count in world.seen.items():
            seen[kind] = seen.get(kind, 0) + count
    kinds = {kind.__name__ for union in (Event, Change, Effect) for kind in get_args(union)}
    expected = (kinds - {Noticed.__name__}) | {notice.name for notice in Notice}
    assert expected - set(seen) == set()
