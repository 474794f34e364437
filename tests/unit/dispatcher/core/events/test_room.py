"""The room in a span: what goes aside, and when a window says that it is full."""

from dispatcher.core.model import AckType, OperatorAct, OperatorVerb, Policy
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
    play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    assert play.core.stats().full_span is None
    assert play.acquire("c1") == [1]


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


def test_a_member_without_keys_makes_nobody_read_all_of_the_log() -> None:
    policy = Policy(span_max=SPAN, lock_duration_ms=3_600_000)
    play = Playbook(policy).join("c1").join("idle", filters=(b"none",))
    play.produce(*[b"slow-%d" % (at % 3) for at in range(100 * SPAN)])
    assert len(play.acquire("c1")) == 3
    said: list[Notice] = []
    for _ in range(100):
        said += play.wait(500).notices()
        if play.read_on():
            play.read()
    assert 4 * SPAN <= play.core.stats().aside <= 5 * SPAN
    assert said == [Notice.SPAN_FULL]


def test_a_window_of_records_has_room_again_when_they_go_aside() -> None:
    policy = Policy(window_records=4, deliveries_max=1)
    play = Playbook(policy).join("c1").produce(b"poison")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    pass_by(play, 40, every=3)
    assert play.core.read_position == 41
    stats = play.core.stats()
    assert stats.unsettled - stats.aside <= 4
