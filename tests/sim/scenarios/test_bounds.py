"""Acceptance scenarios of Key-Shared dispatch: stalls, spans, holes, wake-ups (9, 10, 13, 22,
24, 25)."""

from __future__ import annotations

from dispatcher.core.model import LogTruncated, Policy
from dispatcher.core.steps import Notice, ReadOn
from tests.rig.playbook import Playbook


def test_09_a_slow_consumer_holds_nobody_up() -> None:
    """c2 takes its limit and stops."""
    play = Playbook(Policy(span_max=512, in_flight_per_member_max=20)).join("c1", "c2", "c3")
    play.produce(*[b"key-%d" % (i % 100) for i in range(500)])
    assert len(play.acquire("c2")) == 20
    done = 0
    for _ in range(30):
        for name in ("c1", "c3"):
            offsets = play.acquire(name)
            play.acks(name, [(o, o, b"\1") for o in offsets])
            done += len(offsets)
    slow = next(m for m in play.core.stats().members if m.member_id == "c2")
    assert done == 500 - play.core.stats().unsettled
    assert slow.ready_keys + slow.in_flight == play.core.stats().keys, "all that is left is c2's"


def test_10_a_hot_key_at_the_head_starves_nobody_inside_the_span() -> None:
    play = Playbook(Policy(span_max=64)).join("hot", "c1")
    hot = play.keys_of("hot")[0]
    mine = play.keys_of("c1", 30)
    play.produce(*[hot] * 34, *mine)
    assert play.acquire("hot", 1) == [0], "and is paused"
    assert play.acquire("c1") == list(range(34, 64)), "the backlog of one key blocks no other"
    play.acks("c1", [(34, 63, b"\1")])
    play.produce(*mine)
    assert play.core.read_position == 64
    assert play.acquire("c1") == [], "the bound is the span of offsets, while it may move"
    play.ack("hot", 0)
    assert play.core.cursor == 1
    assert play.read().core.read_position == 65


def test_10_the_bound_is_reported() -> None:
    play = Playbook(Policy(span_max=8, held_max=0)).join("c1").produce(*[b"hot"] * 8)
    assert play.wait(500).notices() == {}
    assert play.wait(500).notices()[Notice.SPAN_FULL] == 1
    assert play.wait(500).notices() == {}


def test_13_holes_never_stop_the_cursor() -> None:
    """Compaction, control batches, aborted transactions; nothing but holes at the end too."""
    play = Playbook().join("c1").hole(3).produce(b"a").hole(2).produce(b"a", b"b").hole(4)
    while offsets := play.acquire("c1"):
        play.acks("c1", [(o, o, b"\1") for o in offsets])
    assert play.core.cursor == play.log_end == 12


def test_22_retention_ran_past_the_cursor() -> None:
    play = Playbook().join("c1").produce(*[b"%d" % i for i in range(10)])
    play.acquire("c1")
    play.ack("c1", [3, 8])
    play.restart().on(LogTruncated(8, play.now_ms))
    assert play.core.front == play.stored.front == 9, "8 is settled: the hole is pruned"
    assert play.core.cursor == 0, "a member works on 0"
    play.join("c1").expect(ReadOn(9, 16_384)).read()
    assert play.ack("c1", [0, 1, 2, 4, 5, 6, 7, 9]) == [None] * 8
    assert play.stored.leases == []
    assert play.stored.cursor == 10


def test_24_no_lost_wake_ups() -> None:
    """Fill the window, stop producing, acknowledge: it goes on in that very step."""
    play = Playbook(Policy(span_max=32)).join("c1")
    play.log.update({i: b"%d" % (i % 7 if i % 2 else 8) for i in range(1_000)})
    play.log_end = 1_000
    play.read()
    steps = 0
    while play.core.cursor < 1_000:
        steps += 1
        offsets = play.acquire("c1")
        if play.read_on():
            play.read()
        for offset in offsets:
            assert play.ack("c1", offset) == [None]
            if play.read_on():
                play.read()
        assert steps < 1_000


def test_25_a_join_moves_only_what_the_newcomer_takes() -> None:
    play = Playbook().join("c1", "c2").produce(*[b"key-%d" % i for i in range(200)])
    before = {member: list(member.sort_ready()) for member in play.core._state.members}
    play.join("c3")
    newcomer = set(play.core._state.members[2].sort_ready())
    assert newcomer
    for member, offsets in before.items():
        after = list(member.sort_ready())
        assert after == [offset for offset in offsets if offset not in newcomer]


def test_d7_counts_follow_a_record_that_moves() -> None:
    play = Playbook(Policy(in_flight_per_member_max=2)).join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.join("c2").leave("c1")
    assert [m.in_flight for m in play.core.stats().members] == [0]
    assert len(play.acquire("c2")) == 2
    assert [m.in_flight for m in play.core.stats().members] == [2]
