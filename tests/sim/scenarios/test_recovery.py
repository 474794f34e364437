"""Acceptance scenarios of Key-Shared dispatch: death, leaving, restart, poison, zombies (4, 14,
15, 18-21, 23)."""

from __future__ import annotations

from random import Random

import pytest

from dispatcher.core.model import (
    AckError,
    AckType,
    DeadLettered,
    MemberId,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
)
from dispatcher.core.steps import Snapshot, WriteDeadLetters
from keyway.commit_metadata.core.metadata import decode, encode
from tests.rig.playbook import Playbook


@pytest.mark.parametrize("seed", range(50))
def test_04_rolling_restart(seed: int) -> None:
    rng = Random(seed)
    play = Playbook(Policy(span_max=256, in_flight_per_member_max=20)).join("c1", "c2", "c3")
    order: dict[bytes | None, list[int]] = {}
    sessions = {"c1": 1, "c2": 1, "c3": 1}
    waiting: dict[str, list[int]] = {name: [] for name in sessions}
    play.produce(*[b"key-%d" % rng.randrange(40) for _ in range(120)])

    def work(name: str) -> None:
        session = f"s{sessions[name]}"
        waiting[name] += play.acquire(name, 10, session)
        rng.shuffle(waiting[name])
        for offset in waiting[name][: rng.randint(0, 12)]:
            assert play.ack(name, offset, session=session) == [None]
            order.setdefault(play.log[offset], []).append(offset)
            waiting[name].remove(offset)

    for restarted in ("c2", "c1", "c3"):
        for _ in range(4):
            work(rng.choice(("c1", "c2", "c3")))
        play.close(restarted, f"s{sessions[restarted]}").leave(restarted)
        waiting[restarted].clear()
        sessions[restarted] += 1
        for _ in range(3):
            work(rng.choice([name for name in sessions if name != restarted]))
        play.join(restarted)
    for _ in range(300):
        for name in sessions:
            work(name)
        if play.core.cursor == 120:
            break
    assert play.core.cursor == 120
    assert all(offsets == sorted(offsets) for offsets in order.values())
    assert sum(len(offsets) for offsets in order.values()) == 120


def test_14_the_death_of_a_consumer_loses_nothing() -> None:
    play = Playbook(Policy(in_flight_per_member_max=500)).join("c1")
    play.produce(*[b"key-%d" % (i % 100) for i in range(500)])
    held = play.acquire("c1")
    assert len(held) == 100
    play.join("c2", "c3").leave("c1", Reason.MEMBER_EVICTED)
    again = play.acquire("c2") + play.acquire("c3")
    assert sorted(again) == held
    assert play.delivered().attempts == [2] * len(play.delivered().offsets)
    assert play.core.cursor == 0


def test_15_a_clean_leave_redelivers_at_once() -> None:
    play = Playbook().join("c1", "c2").produce(*[b"key-%d" % i for i in range(20)])
    held = play.acquire("c1")
    play.acquire("c2")
    play.close("c1").leave("c1")
    assert play.acquire("c2") == held


def test_18_the_budget_survives_a_restart() -> None:
    """Five deliveries, three before the restart."""
    play = Playbook(Policy(deliveries_max=5)).join("c1").produce(b"k")
    sends = 0
    for round_ in range(5):
        if round_ == 3:
            play.restart().join("c1").read()
        assert play.acquire("c1") == [0]
        sends += 1
        play.ack("c1", 0, AckType.RELEASE)
        play.wait(60_000)
    assert play.acquire("c1") == []
    assert (sends, len(play.core.stats().parked)) == (5, 1)


def test_19_the_key_is_free_when_its_record_is_in_the_dlq() -> None:
    play = Playbook(Policy(deliveries_max=2, exhausted=PoisonPolicy.DEAD_LETTER)).join("c1")
    play.produce(b"k", b"other", b"k", b"k")
    for attempt in (1, 2):
        assert play.acquire("c1", 1) == [0]
        assert play.delivered().attempts == [attempt]
        play.ack("c1", 0, AckType.RELEASE)
        if attempt == 1:
            assert play.letters() == []
            play.wait(1_000)
    letter = WriteDeadLetters([0], [2], [Reason.RELEASED], [MemberId("c1")])
    play.expect(letter)
    assert play.acquire("c1") == [1], "others flow, the key is held"
    play.ack("c1", 1)
    play.on(DeadLettered([0], durable=False, now_ms=play.now_ms))
    assert play.acquire("c1") == [], "the DLQ cannot be reached: held, and tried again"
    assert play.wait(999).letters() == []
    assert play.wait(1).expect(letter).letters() == [0]
    assert play.core.cursor == 0
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.core.cursor == 2, "the cursor passes the record in the DLQ"
    for offset in (2, 3):
        assert play.acquire("c1") == [offset], "the records behind it are delivered"
        play.ack("c1", offset)


@pytest.mark.parametrize("verb", OperatorVerb)
def test_20_block_and_what_the_operator_may_do(verb: OperatorVerb) -> None:
    play = Playbook(Policy(deliveries_max=1)).join("c1").produce(b"k", b"k", b"other")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.ack("c1", 2)
    assert [(p.offset, p.key) for p in play.core.stats().parked] == [(0, b"k")]
    play.restart().join("c1").read()
    assert [(p.offset, p.key) for p in play.core.stats().parked] == [(0, b"k")]
    play.on(OperatorAct(verb, [0], play.now_ms))
    expected = {OperatorVerb.RETRY: [0], OperatorVerb.SKIP: [1], OperatorVerb.DEAD_LETTER: []}
    assert play.acquire("c1") == expected[verb]
    assert play.core.stats().parked == []


@pytest.mark.parametrize("lost_store", [False, True])
def test_21_restart_with_ack_holes(lost_store: bool) -> None:
    count = 20_000
    keys = [b"%d" % i for i in range(count)]
    play = Playbook(Policy(span_max=count, in_flight_per_member_max=count)).join("c1")
    play._check_stored = lambda: None  # type: ignore[method-assign]  # once, at the end
    play.produce(*keys)
    assert len(play.acquire("c1", count)) == count
    rng = Random(7)
    acked = sorted(rng.sample(range(1, count), count // 2))
    play.ack("c1", acked)
    if lost_store:
        metadata = encode(play.core.cursor, play.core.settled_ranges())
        assert len(metadata) <= 4_095
        settled = decode(play.core.cursor, metadata)
        assert settled is not None
        play.stored = Snapshot(cursor=play.core.cursor, settled=settled)
    play.restart().join("c2").read()
    play.wait(3_000)
    assert play.acquire("c2", count) == sorted(set(range(count)) - set(acked))


def test_21_metadata_that_cannot_be_read_skips_nothing() -> None:
    assert decode(100, "somebody else's") is None
    play = Playbook(snapshot=Snapshot(cursor=100, settled=decode(100, "?") or []))
    assert play.join("c1").produce(b"a").acquire("c1") == [100]


def test_23_a_zombie_s_acknowledgement() -> None:
    play = Playbook().join("c1", "c2")
    key = play.keys_of("c1")[0]
    play.produce(key, key)
    play.acquire("c1")
    play.wait(30_000).wait(1_000).leave("c1")
    assert play.acquire("c2") == [0]
    assert play.ack("c1", 0) == [AckError.INVALID_RECORD_STATE]
    assert play.core.cursor == 0
    assert play.ack("c2", 0) == [None]
    assert play.ack("c1", 0) == [AckError.INVALID_RECORD_STATE]
    assert play.acquire("c2") == [1]


def test_23_the_same_member_s_earlier_attempt_is_another_lease() -> None:
    play = Playbook().join("c1").produce(b"k")
    play.acquire("c1", session="s1")
    play.close("c1", "s1")
    assert play.acquire("c1", session="s2") == [0]
    assert play.ack("c1", 0, session="s1") == [AckError.INVALID_RECORD_STATE]
    assert play.ack("c1", 0, session="s2") == [None]


def test_d3_what_waits_behind_a_dropped_record_is_delivered() -> None:
    play = Playbook(Policy(exhausted=PoisonPolicy.DROP, deliveries_max=1)).join("c1")
    play.produce(b"k", b"k", b"k")
    for offset in range(3):
        assert play.acquire("c1") == [offset]
        play.ack("c1", offset, AckType.RELEASE)
    assert play.core.cursor == 3
