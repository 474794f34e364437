"""Rejected and exhausted records, each kind under its own policy; the operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.model import (
    AckType,
    DeadLettered,
    MemberId,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
)
from dispatcher.core.steps import (
    Notice,
    Noticed,
    RetryNoted,
    RetryState,
    Snapshot,
    WriteDeadLetters,
)
from tests.rig.playbook import Playbook

BLOCK, DROP, DEAD_LETTER = PoisonPolicy.BLOCK, PoisonPolicy.DROP, PoisonPolicy.DEAD_LETTER
C1 = MemberId("c1")
WAITING = RetryState.WAITING


def rejected(policy: PoisonPolicy) -> Playbook:
    play = Playbook(Policy(rejected=policy)).join("c1").produce(b"k", b"k", b"other")
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


@pytest.mark.parametrize(
    ("policy", "next_of_the_key"),
    [(PoisonPolicy.DROP, [1]), (PoisonPolicy.BLOCK, []), (PoisonPolicy.DEAD_LETTER, [])],
)
def test_without_a_topic_the_policy_decides_anew(
    policy: PoisonPolicy, next_of_the_key: list[int]
) -> None:
    """A group may lose its dead letter topic while letters wait for it. Without one, a policy that
    needs one parks.
    """
    play = rejected(PoisonPolicy.DEAD_LETTER)
    play.core.retune(replace(play.policy, rejected=policy))
    play.on(DeadLettered([0], durable=False, now_ms=play.now_ms, no_topic=True))
    outcome = Notice.DROPPED if policy is DROP else Notice.PARKED
    assert play.notices() == {outcome: 1}
    assert play.letters() == []
    assert play.acquire("c1") == next_of_the_key
    assert play.core.cursor == (1 if policy is DROP else 0)


def test_without_a_topic_an_exhausted_record_has_the_policy_of_its_kind() -> None:
    policy = Policy(rejected=BLOCK, exhausted=DEAD_LETTER, deliveries_max=1)
    play = Playbook(policy).join("c1").produce(b"k", b"k")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0, AckType.RELEASE)
    play.core.retune(replace(play.policy, exhausted=DROP))
    play.on(DeadLettered([0, 77], durable=False, now_ms=play.now_ms, no_topic=True))
    assert play.acquire("c1") == [1]


def test_of_a_record_that_the_log_has_lost_no_letter_is_counted() -> None:
    play = rejected(PoisonPolicy.DEAD_LETTER)
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms, gone=True))
    play.expect(Noticed(Notice.TRUNCATED, 1, "rejected", 0))
    assert (play.core.cursor, play.acquire("c1")) == (1, [1])


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
    play.core.retune(replace(play.policy, rejected=PoisonPolicy.DROP))
    assert play.wait(500).acquire("c1") == []
    assert play.ack("c1", 2) == [None]
    play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.acquire("c1") == [1]


# ------------------------------------------------------------------------- two policies for a group


def ended(play: Playbook) -> PoisonPolicy | None:
    """The policy that the last step shows for record 0; None: it comes again."""
    if play.letters() == [0]:
        return DEAD_LETTER
    if [parked.offset for parked in play.core.stats().parked] == [0]:
        return BLOCK
    return DROP if play.core.cursor > 0 else None


@pytest.mark.parametrize("exhausted", PoisonPolicy)
@pytest.mark.parametrize("rejected", PoisonPolicy)
def test_each_kind_has_its_own_policy(rejected: PoisonPolicy, exhausted: PoisonPolicy) -> None:
    policy = Policy(deliveries_max=2, rejected=rejected, exhausted=exhausted)
    play = Playbook(policy).join("c1").produce(b"k", b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    assert (ended(play), play.notices().get(Notice.REJECTED)) == (rejected, 1)
    assert Notice.EXHAUSTED not in play.notices()
    play = Playbook(policy).join("c1").produce(b"k", b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    assert ended(play) is None
    play.wait(1_000).acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    assert (ended(play), play.notices().get(Notice.EXHAUSTED)) == (exhausted, 1)


def test_a_group_without_settings_rejects_as_kafka_does() -> None:
    play = Playbook().join("c1").produce(b"k", b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    assert ended(play) is DROP
    assert play.acquire("c1") == [1], "an application that rejects goes on with the key"


def test_a_group_without_settings_parks_what_nobody_decided() -> None:
    play = Playbook().join("c1").produce(b"k", b"k")
    for _ in range(play.policy.deliveries_max):
        assert play.wait(60_000).acquire("c1") == [0]
        play.ack("c1", 0, AckType.RELEASE)
    assert ended(play) is BLOCK
    assert play.wait(60_000).acquire("c1") == []


def test_a_reject_of_the_last_permitted_delivery_is_a_reject() -> None:
    policy = Policy(deliveries_max=1, rejected=DEAD_LETTER, exhausted=DROP)
    play = Playbook(policy).join("c1").produce(b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    play.expect(WriteDeadLetters([0], [1], [Reason.REJECTED], [C1]))
    assert Notice.EXHAUSTED not in play.notices()


@pytest.mark.parametrize("how", ["lock", "evicted", "gap", "released"])
def test_every_end_but_a_reject_exhausts(how: str) -> None:
    policy = Policy(deliveries_max=1, rejected=DEAD_LETTER, exhausted=DROP)
    play = Playbook(policy).join("c1", "c2").produce(*Playbook().join("c1", "c2").keys_of("c1"))
    assert play.acquire("c1") == [0]
    match how:
        case "lock":
            play.wait(policy.lock_duration_ms)
        case "evicted":
            play.leave("c1", Reason.MEMBER_EVICTED)
        case "gap":
            play.ack("c1", 0, AckType.GAP)
        case _:
            play.ack("c1", 0, AckType.RELEASE)
    assert (ended(play), play.notices().get(Notice.EXHAUSTED)) == (DROP, 1)


def test_a_step_shows_its_first_poison_record_for_the_log() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.ack("c1", [0, 1, 2], AckType.REJECT)
    play.expect(Noticed(Notice.DROPPED, 3, "rejected", 0))
    play.produce(b"d", b"e")
    play.acquire("c1")
    play.ack("c1", 4, AckType.REJECT)
    play.expect(Noticed(Notice.DROPPED, 1, "rejected", 4))


def test_after_an_operators_retry_the_new_verdict_decides() -> None:
    """A record that was rejected, is delivered once more, and then uses up its deliveries."""
    policy = Policy(deliveries_max=2, rejected=BLOCK, exhausted=DROP)
    play = Playbook(policy).join("c1").produce(b"k")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    assert play.acquire("c1") == [0]
    play.ack("c1", 0, AckType.RELEASE)
    assert ended(play) is DROP


@pytest.mark.parametrize("state", [RetryState.PARKED, RetryState.DEAD_LETTER])
@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.LOCK_TIMEOUT])
def test_state_of_before_the_two_policies_stays_until_it_is_ended(
    state: RetryState, reason: Reason
) -> None:
    """A node with one policy for both parked rejected records; the defaults of today drop it."""
    noted = RetryNoted(0, 1, 0, state, reason, C1)
    play = Playbook(Policy(), Snapshot(cursor=0, retries=[noted])).join("c1")
    assert play.letters() == ([0] if state is RetryState.DEAD_LETTER else [])
    play.produce(b"k", b"k")
    assert play.acquire("c1") == [], "its key waits"
    assert play.core.cursor == 0
    if state is RetryState.PARKED:
        play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    else:
        play.on(DeadLettered([0], durable=True, now_ms=play.now_ms))
    assert play.acquire("c1") == [1]


def test_what_is_retried_and_nobody_takes_is_parked_again() -> None:
    play = Playbook(Policy(rejected=BLOCK))
    play.join("eu", filters=(b"eu-*",)).join("us", filters=(b"us-*",))
    play.produce(b"eu-1", b"eu-1")
    assert play.acquire("eu") == [0]
    play.ack("eu", 0, AckType.REJECT)
    play.leave("eu")
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    assert play.core.cursor == 0, "neither it nor the one behind it is skipped"
    assert [parked.offset for parked in play.core.stats().parked] == [0]
    play.restart().join("us", filters=(b"us-*",)).read()
    assert play.core.cursor == 0
    play.join("eu", filters=(b"eu-*",))
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    assert play.acquire("eu") == [0]


def test_what_is_retried_is_parked_again_when_its_only_taker_leaves_before_it_goes_out() -> None:
    play = Playbook(Policy(rejected=BLOCK))
    play.join("eu", filters=(b"eu-*",)).join("us", filters=(b"us-*",)).produce(b"eu-1", b"eu-1")
    play.acquire("eu")
    play.ack("eu", 0, AckType.REJECT)
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    play.leave("eu")
    assert play.core.cursor == 0
    assert [parked.offset for parked in play.core.stats().parked] == [0]
