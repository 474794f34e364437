"""Exhausted and rejected records under the three poison policies; the operator."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.model import (
    AckType,
    DeadLettered,
    MemberId,
    Notice,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
    RetryNoted,
    RetryState,
    WriteDeadLetters,
)
from tests.rig.playbook import Playbook

C1 = MemberId("c1")
WAITING = RetryState.WAITING


def rejected(poison: PoisonPolicy) -> Playbook:
    play = Playbook(Policy(poison=poison)).join("c1").produce(b"k", b"k", b"other")
    assert play.acquire("c1") == [0, 2]
    assert play.ack("c1", 0, AckType.REJECT) == [None]
    return play


def test_drop_settles_and_goes_on_with_the_key() -> None:
    play = rejected(PoisonPolicy.DROP)
    assert play.notices() == {Notice.REJECTED: 1, Notice.DROPPED: 1}
    assert play.core.cursor == 1
    assert play.acquire("c1") == [1], "later records of the key are delivered, not drained"


def test_dead_letter_holds_the_key_until_the_write_is_durable() -> None:
    play = rejected(PoisonPolicy.DEAD_LETTER)
    play.expect(WriteDeadLetters([0], [1], [Reason.REJECTED], [C1]))
    play.persists(RetryNoted(0, 1, play.now_ms, RetryState.DEAD_LETTER, Reason.REJECTED, C1))
    assert play.acquire("c1") == []
    play.on(DeadLettered([0], durable=False, now_ms=play.now_ms))
    assert play.wait(999).letters() == []
    assert play.wait(1).letters() == [0]
    play.on(DeadLettered([0], durable=False, now_ms=play.now_ms))
    assert play.wait(1_999).letters() == [], "the pause doubles"
    assert play.wait(1).letters() == [0]
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.notices() == {Notice.DEAD_LETTERED: 1}
    assert play.core.cursor == 1
    assert play.acquire("c1") == [1]


def test_dead_letters_are_written_again_after_a_restart() -> None:
    play = rejected(PoisonPolicy.DEAD_LETTER).restart()
    assert play.wait(0).letters() == [0]
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms)).join("c1").read()
    assert play.acquire("c1") == [1]


def test_an_answer_for_what_is_no_dead_letter_is_passed_over() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    play.on(DeadLettered([0, 2, 77], durable=True, now_ms=play.now_ms))
    assert play.step.changes == []
    play = rejected(PoisonPolicy.DEAD_LETTER)
    play.on(DeadLettered([77, 2, 0], durable=True, now_ms=play.now_ms))
    assert (play.core.cursor, play.notices()) == (1, {Notice.DEAD_LETTERED: 1})


def test_block_parks_and_others_flow() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    assert play.notices() == {Notice.REJECTED: 1, Notice.PARKED: 1}
    assert play.ack("c1", 2) == [None]
    assert play.wait(3_600_000).acquire("c1") == []
    (parked,) = play.core.stats().parked
    assert (parked.offset, parked.key, parked.deliveries) == (0, b"k", 1)
    assert (parked.reason, parked.member_id) == (Reason.REJECTED, C1)


def test_operator_retries_once() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    for deliveries in (2, 3):
        play.wait(500).on(OperatorAct(OperatorVerb.RETRY, [0, 1], play.now_ms))
        due_ms = play.now_ms
        play.persists(RetryNoted(0, deliveries - 1, due_ms, WAITING, Reason.OPERATOR, C1))
        assert play.acquire("c1") == [0]
        assert play.delivered().attempts == [deliveries]
        play.ack("c1", 0, AckType.REJECT)
        assert play.core.stats().parked[0].deliveries == deliveries


def test_operator_skips() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    assert play.notices() == {Notice.DROPPED: 1}
    assert play.acquire("c1") == [1]
    assert play.core.stats().parked == []


def test_operator_sends_to_the_dlq() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    play.on(OperatorAct(OperatorVerb.DEAD_LETTER, [0], play.now_ms))
    assert play.letters() == [0]
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.acquire("c1") == [1]


def test_operator_acts_before_the_record_is_read_again() -> None:
    for verb in (OperatorVerb.SKIP, OperatorVerb.RETRY):
        play = rejected(PoisonPolicy.BLOCK).restart()
        play.on(OperatorAct(verb, [0], play.now_ms)).join("c1").read()
        assert play.acquire("c1") == ([1] if verb is OperatorVerb.SKIP else [0])


def test_operator_acts_on_parked_records_only() -> None:
    play = rejected(PoisonPolicy.BLOCK)
    play.on(OperatorAct(OperatorVerb.SKIP, [1, 2, 99], play.now_ms))
    assert play.step.changes == []
    play.on(OperatorAct(OperatorVerb.SKIP, [1, 99, 0], play.now_ms))
    assert play.notices() == {Notice.DROPPED: 1}


def test_a_policy_that_changes_under_dead_letters() -> None:
    """A record on its way to the DLQ stays held until it has arrived, whatever the new policy."""
    play = rejected(PoisonPolicy.DEAD_LETTER)
    play.core.retune(replace(play.policy, poison=PoisonPolicy.DROP))
    assert play.wait(500).acquire("c1") == []
    assert play.ack("c1", 2) == [None]
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.acquire("c1") == [1]
