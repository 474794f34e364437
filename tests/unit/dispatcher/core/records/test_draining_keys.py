"""Keys that change hands, and their counts."""

from __future__ import annotations

import pytest

from dispatcher.core.model import AckType, MemberId, Policy
from dispatcher.core.records.draining_keys import COUNTED_MAX
from dispatcher.core.reports.stats import DrainingKey, MemberStats
from tests.rig.playbook import Playbook

C1 = MemberId("c1")


def moved(*names: str, policy: Policy | None = None) -> tuple[Playbook, list[bytes]]:
    """c1 holds the first record of three keys when `names` join; all three are the last one's
    then. The second of these keys has another record, the third two.
    """
    play = Playbook(policy).join("c1", *names)
    a, b, c = play.keys_of(names[-1], 3)
    for name in names:
        play.leave(name)
    play.produce(a, b, c)
    assert play.acquire("c1") == [0, 1, 2]
    play.produce(b, c, c).join(*names)
    return play, [a, b, c]


def ask(play: Playbook, *names: str) -> None:
    for name in names:
        assert play.core.ready_for(MemberId(name), play.now_ms) == 0
        play.core.check_invariants()


def member(play: Playbook, name: str = "c1") -> MemberStats:
    (found,) = [row for row in play.core.stats().members if row.member_id == name]
    return found


def cleared(play: Playbook, name: str = "c1") -> tuple[int, int]:
    """Of the window and of the member."""
    stats = play.core.stats()
    assert play.core.draining == (len(stats.draining), stats.draining_cleared)
    return play.core.stats().draining_cleared, member(play, name).draining_cleared


def test_an_attempt_is_the_owner_asking_while_a_record_waits() -> None:
    play, (a, b, c) = moved("c2")
    ask(play, "c2", "c1", "nobody", "c2")
    assert play.core.stats().draining == [
        DrainingKey(a, C1, 1, 0, 0),
        DrainingKey(b, C1, 1, 1, 2),
        DrainingKey(c, C1, 1, 2, 2),
    ]
    play.produce(a)
    ask(play, "c2")
    assert [key.attempts for key in play.core.stats().draining] == [1, 3, 3]
    row = member(play)
    assert (row.draining_keys, row.draining_in_flight, row.draining_blocked) == (3, 3, 4)
    assert (row.draining_attempts, row.draining_cleared) == (7, 0)
    other = member(play, "c2")
    assert (other.draining_keys, other.draining_attempts, other.draining_cleared) == (0, 0, 0)


def test_attempts_of_several_owners_and_from_the_beginning_the_next_time() -> None:
    play, (a, _, c) = moved("c2")
    ask(play, "c2")
    play.leave("c2")
    ask(play, "c1")
    assert (play.core.stats().draining, cleared(play)) == ([], (3, 3)), "at home again"
    play.join("c2")
    assert [key.attempts for key in play.core.stats().draining] == [0, 0, 0]
    ask(play, "c2")
    play.join("c3")
    ask(play, "c2", "c3")
    assert [key.attempts for key in play.core.stats().draining] == [0, 2, 2], "both still c2's"
    play.leave("c2")
    ask(play, "c2", "c3")
    assert play.core.stats().draining == [
        DrainingKey(a, C1, 1, 0, 0),
        DrainingKey(c, C1, 1, 2, 3),
    ], "c3's by now, and the other one's home is c1"
    assert cleared(play) == (4, 4)


@pytest.mark.parametrize("ending", ["accepted", "released", "rejected", "closed", "left"])
def test_what_clears_a_key(ending: str) -> None:
    play, (_, b, _) = moved("c2")
    ask(play, "c2")
    if ending == "closed":
        play.close("c1")
    elif ending == "left":
        play.leave("c1")
    else:
        kinds = {
            "accepted": AckType.ACCEPT,
            "released": AckType.RELEASE,
            "rejected": AckType.REJECT,
        }
        play.ack("c1", [0, 2], kinds[ending])
        (left,) = play.core.stats().draining
        assert (left.key, left.attempts) == (b, 1)
        assert cleared(play) == (2, 2)
        play.ack("c1", 1, kinds[ending])
    stats = play.core.stats()
    assert (stats.draining, stats.draining_cleared) == ([], 3)
    if ending != "left":
        row = member(play)
        assert (row.draining_keys, row.draining_attempts, row.draining_cleared) == (0, 0, 3)
        play.ack("c1", 7)
        assert cleared(play, "c1") == (3, 3)
        assert member(play, "c2").draining_cleared == 0


def test_who_comes_again_counts_anew_and_the_window_goes_on() -> None:
    play, _ = moved("c2")
    play.ack("c1", 0)
    play.leave("c1").join("c1")
    assert cleared(play) == (3, 0)


def test_what_was_held_before_a_restart_drains_when_it_is_read_again() -> None:
    play, (a, b, c) = moved("c2")
    play.restart().join("c2")
    assert play.core.stats().draining == []
    play.read()
    ask(play, "c2")
    assert play.core.stats().draining == [
        DrainingKey(a, C1, 1, 0, 0),
        DrainingKey(b, C1, 1, 1, 1),
        DrainingKey(c, C1, 1, 2, 1),
    ]
    assert member(play).draining_keys == 3, "it is not there, and holds them"
    play.ack("c1", [0, 1, 2])
    assert play.core.stats().draining_cleared == 3
    assert play.acquire("c2") == [3, 4]


def test_runs_of_a_key() -> None:
    """With prefetch: cleared when nothing of the run is in flight. A failed record waits,
    though it stands ahead of those in flight.
    """
    play = Playbook(Policy(prefetch_per_key=2)).join("c1", "c2")
    (key,) = play.keys_of("c2")
    play.leave("c2").produce(key, key)
    assert play.acquire("c1") == [0, 1]
    play.join("c2")
    ask(play, "c2")
    assert play.core.stats().draining == [DrainingKey(key, C1, 2, 0, 0)]
    play.ack("c1", 0, AckType.RELEASE)
    ask(play, "c2")
    assert play.core.stats().draining == [DrainingKey(key, C1, 1, 1, 1)]
    assert cleared(play) == (0, 0)
    play.ack("c1", 1, AckType.RELEASE)
    assert (play.core.stats().draining, cleared(play)) == ([], (1, 1))


def test_a_key_without_an_owner_drains_too() -> None:
    play = Playbook().join("c1", filters=(b"a",)).produce(b"a", b"a")
    assert play.acquire("c1") == [0]
    play.leave("c1").join("c2", filters=(b"b",))
    assert play.core.stats().draining == [], "it was given back"
    play = Playbook().join("c1", filters=(b"a",)).produce(b"a", b"a")
    play.acquire("c1")
    play.restart().join("c2", filters=(b"b",)).read()
    ask(play, "c2")
    assert play.core.stats().draining == [DrainingKey(b"a", C1, 1, 1, 0)], "nobody to ask"


def test_a_drain_reads_well() -> None:
    play, _ = moved("c2")
    draining = play.core._state.draining_keys
    assert repr(next(iter(draining.by_key.values()))) == "<at c1 attempts=0>"


def test_of_very_many_draining_keys_no_attempts_are_counted() -> None:
    """It would be a pass over all of them with each question of each fetch."""
    play = Playbook().join("c1")
    keys = [b"key-%d" % at for at in range(4 * COUNTED_MAX)]
    play.produce(*keys)
    play.acquire("c1", len(keys))
    play.produce(*keys).join("c2")
    drain = play.core.draining[0]
    assert drain > COUNTED_MAX
    ask(play, "c2")
    assert {key.attempts for key in play.core.stats().draining} == {0}
    settled = 0
    while play.core.draining[0] > COUNTED_MAX:
        play.ack("c1", settled)
        settled += 1
    play.core.check_invariants()
    assert cleared(play)[0] == drain - COUNTED_MAX
    assert play.acquire("c2", len(keys)), "the keys that have drained"
    ask(play, "c2")
    assert {key.attempts for key in play.core.stats().draining} == {1}
