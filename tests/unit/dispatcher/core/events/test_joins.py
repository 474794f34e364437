"""PIP-282: last sent position and individually sent ranges, its worked example and its two issues,
under both join policies.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.model import (
    AckType,
    Acquire,
    JoinPolicy,
    LeaseId,
    LogTruncated,
    MemberId,
    PoisonPolicy,
    Policy,
    Reason,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import LeaseState, MembersReady, Snapshot
from tests.rig.playbook import Playbook

LAST_SENT = Policy(join_policy=JoinPolicy.LAST_SENT, backoff_base_ms=100)


def sent(play: Playbook) -> tuple[int, list[tuple[int, int]]]:
    """Last sent position and individually sent ranges as PIP-282 writes them: (open, closed]."""
    stats = play.core.stats()
    return stats.last_sent, [(first - 1, last) for first, last in stats.individually_sent]


def joined_behind(play: Playbook, name: str) -> int | None:
    (stats,) = [m for m in play.core.stats().members if m.member_id == name]
    return stats.last_sent_when_joining


def test_pip_282_worked_example() -> None:
    """Positions 3:n are offsets n. Of 1 to 10 each is of another key: 4, 6 and 7 of members that
    fetch late.
    """
    play = Playbook(LAST_SENT).join("most", "four", "six", "seven")
    most = play.keys_of("most", 8)
    keys = {
        **dict(zip((0, 1, 2, 3, 5, 8, 9, 10), most, strict=True)),
        4: play.keys_of("four")[0],
        6: play.keys_of("six")[0],
        7: play.keys_of("seven")[0],
    }
    play.produce(*[keys[offset] for offset in range(11)])
    assert play.acquire("most", 1) == [0]
    assert sent(play) == (0, []), "lastSentPosition 3:0"
    assert play.acquire("most") == [1, 2, 3, 5, 8, 9, 10]
    assert sent(play) == (3, [(4, 5), (7, 10)])
    assert play.acquire("seven") == [7]
    assert sent(play) == (3, [(4, 5), (6, 10)])
    assert play.acquire("six") == [6]
    assert sent(play) == (3, [(4, 10)])
    assert play.acquire("four") == [4]
    assert sent(play) == (10, [])


@pytest.mark.parametrize("rule", JoinPolicy)
def test_what_was_sent_is_the_same_after_a_restart(rule: JoinPolicy) -> None:
    """Acknowledged, held and given back: all of it was sent; and nothing of it is stored twice."""
    play = Playbook(Policy(join_policy=rule)).join("most", "late")
    a, b, c, d = play.keys_of("most", 4)
    play.produce(a, b, play.keys_of("late")[0], c).hole(1).produce(d)
    assert play.acquire("most") == [0, 1, 3, 5]
    play.ack("most", 3)
    play.ack("most", 5, AckType.RELEASE)
    assert sent(play) == (1, [(2, 5)])
    play.restart()
    assert sent(play)[0] == 1
    assert play.core.stats().individually_sent in ([(3, 5)], [(3, 3), (5, 5)]), "4 is unknown yet"
    play.join("most", "late").read()
    assert sent(play) == (1, [(2, 5)])


def test_all_of_a_full_window_was_sent() -> None:
    """As many records as the rings have places: behind the last comes the first."""
    play = Playbook(Policy(span_max=64)).join("c1").produce(*[b"%d" % at for at in range(64)])
    assert play.acquire("c1") == list(range(64))
    assert sent(play) == (63, [])


def test_what_is_unknown_at_the_read_position_was_not_sent() -> None:
    lease = LeaseState(LeaseId(1), MemberId("c1"), SessionId("s1"), 60_000, [1])
    assert sent(Playbook(snapshot=Snapshot(cursor=0, leases=[lease]))) == (-1, [(0, 1)])


@pytest.mark.parametrize("rule", JoinPolicy)
def test_pip_282_issue_1(rule: JoinPolicy) -> None:
    """Steps of the issue: c1 may have one record, c2 a thousand; offsets 6-11 are a a a b b b."""
    play = Playbook(Policy(join_policy=rule)).join("c1", "c2", "c3")
    a = play.keys_of("c3")[0]
    play.leave("c3")
    first = play.core.members[_owner(play, a)].member_id
    second = next(m.member_id for m in play.core.members if m.member_id != first)
    b = play.keys_of(second, 40)[-1]
    play.hole(6).produce(a, a, a, b, b, b)
    assert play.acquire(first, 1) == [6]
    for offset in (9, 10, 11):  # one record of a key at a time: b is acknowledged as it goes
        assert play.acquire(second) == [offset]
        if offset < 11:
            play.ack(second, offset)
    assert sent(play) == (6, [(8, 11)])
    play.join("c3")
    assert play.core.members[_owner(play, a)].member_id == "c3", "c3 owns a"
    assert joined_behind(play, "c3") == 6
    assert play.acquire("c3") == [], "nothing of a while 6 is with the first"
    play.leave(first, Reason.MEMBER_EVICTED)
    play.expect(MembersReady([MemberId("c3")]))
    for offset in (6, 7, 8):
        assert play.acquire("c3") == [offset], "in order"
        play.ack("c3", offset)
    assert play.core.cursor == 11


def _owner(play: Playbook, key: bytes) -> int:
    return int(play.core._state.owners.router.owner_of(key, 0))


@pytest.mark.parametrize("rule", JoinPolicy)
def test_pip_282_issue_2(rule: JoinPolicy) -> None:
    """c1 holds 1 of key a and may have no more; c3 joins and owns a: 2 waits for 1."""
    play = Playbook(Policy(join_policy=rule, in_flight_per_member_max=1)).join("c1", "c3")
    a = play.keys_of("c3")[0]
    play.leave("c3").hole(1).produce(a, a)
    assert play.acquire("c1") == [1]
    assert play.acquire("c1") == []
    play.join("c3")
    assert play.acquire("c3") == []
    assert joined_behind(play, "c3") == 1
    play.leave("c1", Reason.MEMBER_EVICTED)
    assert play.acquire("c3") == [1]
    assert play.delivered().attempts == [2]
    play.ack("c3", 1)
    assert play.acquire("c3") == [2]


def test_last_sent_waits_for_all_that_was_sent_per_key_for_its_own_keys_only() -> None:
    """The difference of the two policies: a key of the newcomer that nobody holds."""
    for rule, got in ((JoinPolicy.PER_KEY, [1]), (JoinPolicy.LAST_SENT, [])):
        play = Playbook(Policy(join_policy=rule)).join("c1", "c2")
        mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
        play.leave("c2").produce(other)
        play.acquire("c1")
        play.join("c2").produce(mine)
        assert play.core.ready_for(MemberId("c2"), play.now_ms) == len(got)
        assert play.acquire("c2") == got
        if not got:
            play.ack("c1", 0)
            play.expect(MembersReady([MemberId("c2")]))
            assert play.acquire("c2") == [1]
        assert joined_behind(play, "c2") == 0, "reported under both"


def test_a_newcomer_is_woken_for_what_comes_back_to_it() -> None:
    """Its list holds keys it may not have yet: one more, which it may, must still wake it."""
    play = Playbook(LAST_SENT).join("c1", "c2", "c3")
    mine, other = play.keys_of("c2", 2)
    rest = play.keys_of("c3")[0]
    play.leave("c2").produce(other, rest)
    first = play.core.members[_owner(play, other)].member_id
    for name in ("c1", "c3"):
        play.acquire(name)
    play.join("c2").produce(mine)
    assert play.acquire("c2") == []
    play.ack(first, 0, AckType.RELEASE)
    assert play.effects(MembersReady) == []
    play.wait(100).expect(MembersReady([MemberId("c2")]))
    assert play.core.ready_for(MemberId("c2"), play.now_ms) == 1
    assert play.acquire("c2") == [0], "and not 2, which is new"
    play.ack("c3", 1)
    assert play.acquire("c2") == []
    play.ack("c2", 0)
    assert play.acquire("c2") == [2]


def test_a_newcomer_gets_no_more_than_it_asks_for_nor_than_it_has_room_for() -> None:
    policy = Policy(join_policy=JoinPolicy.LAST_SENT, in_flight_per_member_max=2)
    play = Playbook(policy).join("c1", "c2")
    mine = play.keys_of("c2", 4)
    play.leave("c2").produce(*mine)
    play.on(Acquire(MemberId("c1"), SessionId("s1"), 4, play.now_ms))
    play.core.retune(replace(policy, in_flight_per_member_max=4))
    assert play.acquire("c1") == [2, 3]
    play.join("c2").produce(*play.keys_of("c2", 5)[4:]).close("c1")
    assert play.core.ready_for(MemberId("c2"), play.now_ms) == 4
    assert (play.acquire("c2", 1), play.acquire("c2", 2)) == ([0], [1, 2])
    play.core.retune(replace(policy, in_flight_per_member_max=2))
    assert play.acquire("c2") == [], "it holds more than it may now"
    play.ack("c2", [0, 1])
    assert play.acquire("c2") == [3]


def test_who_joins_later_waits_longer() -> None:
    play = Playbook(LAST_SENT).join("c1", "c2", "c3")
    held = play.keys_of("c1", 15)
    second, third = play.keys_of("c2")[0], play.keys_of("c3")[0]
    play.leave("c2").leave("c3").produce(*held[:10])
    play.acquire("c1")
    play.join("c2").produce(*held[10:])
    play.acquire("c1")
    play.join("c3").produce(second, third)
    assert [joined_behind(play, name) for name in ("c2", "c3")] == [9, 14]
    play.acks("c1", [(0, 9, b"\1")])
    play.expect(MembersReady([MemberId("c2")]))
    assert (play.acquire("c2"), play.acquire("c3")) == ([15], [])
    play.acks("c1", [(10, 14, b"\1")])
    assert play.acquire("c3") == [16]


@pytest.mark.parametrize("how", ["truncation", "leaving"])
def test_a_limit_also_ends(how: str) -> None:
    """With the records that retention takes away, and with everybody else."""
    play = Playbook(LAST_SENT).join("c1", "c2")
    mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.leave("c2").produce(other)
    play.acquire("c1")
    play.join("c2").produce(mine)
    assert play.acquire("c2") == []
    if how == "truncation":
        play.ack("c1", 0, AckType.RELEASE)
        play.on(LogTruncated(1, play.now_ms)).expect(MembersReady([MemberId("c2")]))
        assert play.acquire("c2") == [1]
    else:
        play.leave("c1", closes=False).expect(MembersReady([MemberId("c2")]))
        assert play.acquire("c2") == [1]
        assert play.close("c1").acquire("c2") == [0]


def test_with_prefetch_a_newcomer_that_still_holds_a_key_gets_no_more_of_it() -> None:
    """The next record of the key is behind its limit, the first one is not."""
    play = Playbook(replace(LAST_SENT, prefetch_per_key=2)).join("c1", "c2")
    mine = play.keys_of("c2")[0]
    play.produce(mine, mine, mine)
    assert play.acquire("c2", 1) == [0]
    play.leave("c2", closes=False).join("c2")
    assert play.acquire("c2") == []
    play.ack("c2", 0)
    assert play.acquire("c2") == [1, 2]


def test_a_limit_ends_with_its_join_policy() -> None:
    """A group's settings may change while its windows are up, also there and back."""
    play = Playbook(LAST_SENT).join("c1", "c2")
    mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.leave("c2").produce(other)
    play.acquire("c1")
    play.join("c2").produce(mine)
    assert play.acquire("c2") == []
    play.core.retune(replace(LAST_SENT, join_policy=JoinPolicy.PER_KEY))
    play.wait(1).expect(MembersReady([MemberId("c2")]))
    play.core.retune(LAST_SENT)
    assert play.acquire("c2") == [1]


def test_the_first_members_have_no_limit_nor_do_those_that_a_restart_finds() -> None:
    play = Playbook(LAST_SENT).join("c1", "c2")
    play.produce(*[b"key-%d" % i for i in range(20)])
    held = play.acquire("c1")
    assert held
    assert play.acquire("c2") != []
    assert [joined_behind(play, name) for name in ("c1", "c2")] == [None, None]
    play.restart().join("c1", "c2", "c3").read()
    assert [joined_behind(play, name) for name in ("c1", "c2", "c3")] == [None] * 3


def test_one_that_leaves_and_comes_back_is_a_newcomer() -> None:
    play = Playbook(LAST_SENT).join("c1", "c2")
    mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.produce(other)
    play.acquire("c1")
    play.leave("c2").join("c2").produce(mine)
    assert (joined_behind(play, "c2"), play.acquire("c2")) == (0, [])


def test_a_parked_record_holds_newcomers_back() -> None:
    """PIP-282's cost: everything sent before must be settled, and a parked record is not."""
    play = Playbook(replace(LAST_SENT, rejected=PoisonPolicy.BLOCK)).join("c1", "c2")
    mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.leave("c2").produce(other)
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    play.join("c2").produce(mine)
    assert play.acquire("c2") == []


def test_a_run_of_one_key_waits_behind_the_limit_too() -> None:
    policy = Policy(join_policy=JoinPolicy.LAST_SENT, prefetch_per_key=3, backoff_base_ms=1)
    play = Playbook(policy).join("c1", "c2")
    mine = play.keys_of("c2")[0]
    play.leave("c2").produce(mine, mine, mine)
    assert play.acquire("c1", 2) == [0, 1]
    play.join("c2").close("c1")
    assert play.acquire("c2") == [0], "one at a time up to the last sent position, which is 1"
    play.ack("c2", 0)
    assert play.acquire("c2") == [1]
    assert play.acquire("c2") == []
    play.ack("c2", 1)
    assert play.acquire("c2") == [2]


def test_a_key_that_an_earlier_session_holds_is_offered_when_that_ends() -> None:
    """It stayed listed: the member was taken for one with records, and never woken."""
    policy = Policy(join_policy=JoinPolicy.LAST_SENT, prefetch_per_key=2, backoff_base_ms=100)
    play = Playbook(policy).join("c1", "c2")
    mine, other = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.produce(mine, mine, mine, other)
    assert play.acquire("c2") == [0, 1]
    assert play.acquire("c1") == [3]
    play.leave("c2", closes=False).join("c2")
    play.ack("c2", 1, AckType.RELEASE)
    play.wait(1_000)
    assert play.acquire("c2", session="s2") == []
    assert play.core.ready_for(MemberId("c2"), play.now_ms) == 0
    play.ack("c2", 0)
    assert MembersReady([MemberId("c2")]) in play.step.effects
    assert play.acquire("c2", session="s2") == [1]


# --- a member joins when a window was just loaded and not read again: holes are not stored


def loaded_again(*, settled: int = 0, hole: bool = True) -> tuple[Playbook, bytes]:
    """c1 was sent 0, 1, 3 and 4 of 0-5, of which the first `settled` are settled; 5 is nobody's and
    2 is a hole or was not sent. c2 joins before anything is read again. Returns a key of c2's.
    """
    play = Playbook(LAST_SENT).join("c1", "c2")
    mine, late = play.keys_of("c2", 2)
    theirs = play.keys_of("c1", 4)
    play.produce(*theirs[:2])
    play = play.hole() if hole else play.produce(late)
    play.produce(*theirs[2:], late)
    assert play.acquire("c1") == [0, 1, 3, 4]
    play.restart().join("c1").ack("c1", range(settled))
    return play.join("c2"), mine


@pytest.mark.parametrize("settled", [0, 2])
def test_where_a_member_joined_is_found_when_holes_are_read_again(settled: int) -> None:
    """With 2 settled the hole is at the cursor: no limit at first, and one when it is read."""
    play, mine = loaded_again(settled=settled)
    assert joined_behind(play, "c2") == 1, "2 is unknown yet"
    play.read()
    assert joined_behind(play, "c2") == 4
    play.produce(mine)
    assert play.acquire("c2") == []
    play.ack("c1", range(settled, 2))
    play.ack("c1", 4)
    assert play.acquire("c2") == [], "3 was sent before it joined and is not settled"
    play.ack("c1", 3)
    assert play.acquire("c2", 1) == [5]


def test_what_was_never_sent_ends_the_last_sent_position_when_it_is_read_again() -> None:
    play, _ = loaded_again(hole=False)
    play.read()
    assert joined_behind(play, "c2") == 1
    assert play.acquire("c2") == []
    play.ack("c1", [0, 1])
    assert play.acquire("c2") == [2], "and a record that is handed out later changes nothing"
    play.hole()
    assert joined_behind(play, "c2") == 1


def test_where_members_joined_is_found_step_by_step() -> None:
    play, _ = loaded_again()
    for end, behind in ((1, 1), (2, 1), (3, 4)):
        start = play.core.read_position
        offsets = [at for at in range(start, end) if at in play.log]
        keys = [play.log[at] for at in offsets]
        play.on(RecordsRead(start, end, offsets, keys, play.now_ms, play.log_end))
        if end == 2:
            play.join("c3")
        assert joined_behind(play, "c2") == behind
    assert joined_behind(play, "c3") == 4


def test_a_log_that_begins_behind_an_unknown_offset_says_as_much() -> None:
    play, mine = loaded_again()
    play.on(LogTruncated(3, play.now_ms))
    assert joined_behind(play, "c2") == 4
    play.read().produce(mine)
    assert play.acquire("c2") == []


def test_who_was_alone_meanwhile_joined_nobody() -> None:
    """Records of c1 come back: c2 may have them, and new records, whoever joins after it."""
    play, _ = loaded_again()
    play.leave("c1").join("c3").read()
    assert joined_behind(play, "c2") == 1, "as it was known then"
    assert joined_behind(play, "c3") == 4
    assert play.acquire("c2")[-1] == 5


def test_a_member_that_leaves_while_its_position_is_not_known_is_forgotten() -> None:
    play, mine = loaded_again()
    play.join("c3").leave("c2").read()
    assert joined_behind(play, "c3") == 4
    play.join("c2").produce(mine)
    assert (joined_behind(play, "c2"), play.acquire("c2")) == (4, [])


def test_what_the_snapshot_knew_ends_the_search_for_where_a_member_joined() -> None:
    """A hole where it ends was not sent when c2 joined, and nothing that is read says it was."""
    play = Playbook(LAST_SENT).join("c1", "c2")
    theirs = play.keys_of("c1", 5)
    play.produce(*theirs[:2])
    assert play.acquire("c1") == [0, 1]
    play.restart().join("c1").join("c2")
    play.hole().produce(theirs[2])
    assert joined_behind(play, "c2") == 1


def test_so_does_a_step_of_reading_that_comes_to_its_end() -> None:
    play, _ = loaded_again()
    del play.log[5]  # compacted meanwhile
    for end in (3, 7):
        start = play.core.read_position
        offsets = [at for at in range(start, end) if at in play.log]
        keys = [play.log[at] for at in offsets]
        play.on(RecordsRead(start, end, offsets, keys, play.now_ms, 7))
        assert joined_behind(play, "c2") == 4
