"""The room in a span: what goes aside, and when a window says that it is full."""

from dispatcher.core.model import AckType, MemberId, OperatorAct, OperatorVerb, Policy, Ticked
from dispatcher.core.records.keys import NO_OFFSET
from dispatcher.core.reports.stats import FullSpan
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.steps import Notice, Noticed
from tests.rig.playbook import Playbook
from tests.unit.dispatcher.core.records.test_aside import SPAN, parked, pass_by


def test_no_more_than_held_max_go_aside_and_it_is_said() -> None:
    play = parked(held_max=3)
    play.produce(*[b"poison"] * (3 * SPAN)).read()
    assert play.core.stats().aside == 3
    assert play.core.read_position == 3 + SPAN
    play.wait(500)
    key_hash = f"{key_hash32(b'poison'):08x}"
    play.wait(500).expect(Noticed(Notice.SPAN_FULL, 1, f"offset 3 key hash {key_hash}"))
    assert play.core.stats().full_span == FullSpan(3, b"poison", 3 + SPAN, None)
    assert play.wait(500).notices() == {}
    assert play.core.holder == 3
    play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    for offset in range(1, 4):
        assert play.core.stats().full_span == FullSpan(3, b"poison", SPAN + 3 - offset, None)
        assert play.acquire("c1") == [offset]
        assert play.ack("c1", offset) == [None]
    assert play.read_on() == [(SPAN + 3, 1)], "the front moves"
    assert (play.core.stats().full_span, play.core.holder) == (None, NO_OFFSET)


def test_records_that_the_members_can_have_stay_in_the_span() -> None:
    """Nobody is held up: reading more would only mean to read it twice."""
    play = Playbook(Policy(span_max=SPAN)).join("c1").produce(*[b"%d" % at for at in range(20)])
    for _ in range(4):
        play.wait(500)
    stats = play.core.stats()
    assert (stats.aside, play.core.read_position, stats.full_span) == (0, SPAN, None)


def test_a_record_in_flight_for_long_holds_up_its_own_key_only() -> None:
    play = Playbook(Policy(span_max=SPAN)).join("c1").produce(b"slow")
    assert play.acquire("c1") == [0]
    pass_by(play, 10 * SPAN, every=1_000)
    assert play.core.read_position == 10 * SPAN + 1
    assert play.ack("c1", 0, AckType.RENEW) == [None]
    assert play.ack("c1", 0) == [None]
    assert play.core.cursor == 10 * SPAN + 1


def test_the_backlog_of_a_paused_member_goes_aside_at_a_tick() -> None:
    play = Playbook(Policy(span_max=SPAN)).join("c1", "c2")
    (paused,), (mine,) = play.keys_of("c1"), play.keys_of("c2")
    play.produce(*[paused] * (2 * SPAN), mine)
    assert play.acquire("c1") == [0]
    assert play.acquire("c2") == []
    for _ in range(40):
        play.wait(500)
        if play.read_on():
            play.read()
    assert play.acquire("c2") == [2 * SPAN]


def caught_up(play: Playbook) -> Playbook:
    """Everything that the window wants to read is read."""
    while play.core._state.reading and play.core.read_position < play.log_end:
        play.read()
    return play


def ticked(play: Playbook, ticks: int) -> list[Notice]:
    """Returns what was said."""
    said: list[Notice] = []
    for _ in range(ticks):
        said += caught_up(play).wait(500).notices()
        caught_up(play)
    return said


def test_keys_behind_the_longest_backlog_of_a_slow_key_go_on() -> None:
    play = Playbook(Policy(span_max=SPAN, lock_duration_ms=3_600_000)).join("c1", "c2")
    (slow,), (mine,) = play.keys_of("c1"), play.keys_of("c2")
    play.produce(*[slow] * (50 * SPAN), mine)
    assert play.acquire("c1") == [0]
    assert ticked(play, 250) == []
    assert play.acquire("c2") == [50 * SPAN]


def test_slow_keys_go_aside_as_long_as_they_are_not_too_many() -> None:
    play = Playbook(Policy(span_max=SPAN)).join("c1", "c2")
    slow, (mine,) = play.keys_of("c1", 50), play.keys_of("c2")
    play.produce(*slow, mine)
    assert play.acquire("c1", 1) == [0]
    assert ticked(play, 50) == [Notice.SPAN_FULL]
    assert play.core.holder == play.core.front
    full = play.core.stats().full_span
    assert full is not None
    assert (full.offset, full.by_aside) == (play.core.front, False)
    assert play.core.stats().aside == 4 * SPAN
    assert len(play.acquire("c1")) == 5 * SPAN - 1
    play.acks("c1", [(0, 5 * SPAN - 1, b"\1")])
    ticked(play, 5)
    assert (play.core.holder, play.acquire("c2")) == (NO_OFFSET, [50])


def test_a_slow_key_goes_aside_beside_the_backlog_of_a_parked_one() -> None:
    play = parked().join("c2")
    (slow,), (mine,) = play.keys_of("c1"), play.keys_of("c2")
    play.produce(*[b"poison"] * (10 * SPAN))
    assert caught_up(play).core.stats().aside >= 9 * SPAN
    play.produce(*[slow] * (3 * SPAN), mine)
    assert caught_up(play).acquire("c1") == [10 * SPAN + 1]
    assert ticked(play, 20) == []
    assert play.acquire("c2") == [13 * SPAN + 1]


def test_keys_behind_a_key_that_goes_on_slowly_do_not_wait_for_its_backlog() -> None:
    """The front moves at each tick, by less than a part of the span that is worth a word."""
    play = Playbook(Policy(span_max=1_024)).join("c1", "c2")
    (slow,), (mine,) = play.keys_of("c1"), play.keys_of("c2")
    play.produce(*[slow] * 4_096, mine)
    for offset in range(30):
        assert play.acquire("c1") == [offset]
        play.ack("c1", offset)
        ticked(play, 1)
    assert play.acquire("c2") == [4_096]


def test_a_backlog_that_is_worked_off_stays_in_the_span() -> None:
    """A member without keys of it is no reason to read further."""
    play = Playbook(Policy(span_max=256)).join("c1", "c2")
    keys = play.keys_of("c1", 8)
    play.produce(*[keys[at % 8] for at in range(2_000)])
    for _ in range(200):
        offsets = play.acquire("c1")
        play.acks("c1", [(o, o, b"\1") for o in offsets])
        ticked(play, 1)
        assert play.core.stats().aside == 0


def test_nothing_goes_aside_for_a_member_that_is_silent() -> None:
    play = Playbook(Policy(span_max=SPAN, lock_duration_ms=5_000)).join("c1", "c2")
    (key,) = play.keys_of("c1")
    play.produce(*[key] * (10 * SPAN))

    def tick() -> None:
        play.now_ms += 500
        play.on(Ticked(play.now_ms, frozenset({MemberId("c2")})))

    while not play.core._state.by_member[MemberId("c1")].attention.silent:
        tick()
    aside = play.core.stats().aside
    assert play.acquire("c2") == [0]
    for _ in range(8):
        tick()
    assert play.core.stats().aside == aside


def test_a_slow_key_with_as_much_aside_as_permitted_is_told_until_it_has_moved_on() -> None:
    """However often a record of it is done meanwhile: that makes room for one."""
    policy = Policy(span_max=SPAN, held_max=20, lock_duration_ms=3_600_000)
    play = Playbook(policy).join("c1").join("idle", filters=(b"none",))
    play.produce(*[b"slow"] * (100 * SPAN))
    assert play.acquire("c1") == [0]
    said = ticked(play, 40)
    assert (said, play.core.stats().aside) == ([Notice.SPAN_FULL], 20)
    full = play.core.stats().full_span
    assert full is not None
    assert play.core.holder == full.offset == play.core.front == 20


def test_a_window_of_records_has_room_again_when_they_go_aside() -> None:
    policy = Policy(window_records=4, deliveries_max=1)
    play = Playbook(policy).join("c1").produce(b"poison")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    pass_by(play, 40, every=3)
    assert play.core.read_position == 41
    stats = play.core.stats()
    assert stats.unsettled - stats.aside <= 4
