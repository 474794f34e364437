"""The judge of the crash rounds sees each fault that it is there to see."""

from __future__ import annotations

from tests.chaos.judge import Flush, Processed, Verdict, judge
from tests.chaos.plan import Victim, plan_of
from tests.rig.clients.share_lines import Acked, Delivery

MS = 1_000_000
TOPIC = {0: [(0, b"k", b"a"), (1, b"k", b"b"), (2, b"other", b"c")]}


def delivered(
    offset: int, at_ms: int, *, member: str = "m", done_ms: int | None = None
) -> Processed:
    """Done at once unless said otherwise; a `done_ms` below 0 is never."""
    _, key, value = TOPIC[0][offset]
    delivery = Delivery(member, at_ms * MS, "t", 0, offset, 1, 0, key, value, ())
    done = at_ms if done_ms is None else done_ms
    return Processed(delivery, done * MS if done >= 0 else None)


def told(offset: int, at_ms: int, error: str | None = None) -> Acked:
    return Acked("m", at_ms * MS, "t", 0, offset, error)


def verdict(
    *processed: Processed, acked: tuple[Acked, ...] = (), flushes: tuple[Flush, ...] = ()
) -> Verdict:
    return judge("t", TOPIC, processed, acked, flushes)


def test_every_record_once_and_in_order_passes() -> None:
    found = verdict(delivered(0, 1), delivered(2, 1), delivered(1, 2), acked=(told(0, 2),))
    assert found.passed
    assert (found.records, found.delivered, found.again, found.lost) == (3, 3, 0, 0)


def test_a_record_that_was_never_processed_is_lost() -> None:
    assert verdict(delivered(0, 1), delivered(1, 2)).lost == 1
    only_seen = verdict(delivered(0, 1), delivered(1, 2), delivered(2, 3, done_ms=-1))
    assert only_seen.lost == 1
    assert not only_seen.passed


def test_a_later_record_first_is_out_of_order() -> None:
    found = verdict(delivered(1, 1), delivered(0, 2), delivered(2, 3))
    assert found.reordered == 1
    assert not found.passed


def test_a_later_record_while_the_earlier_one_is_at_work_is_out_of_order() -> None:
    rest = delivered(2, 1)
    assert not verdict(delivered(0, 1, done_ms=5), delivered(1, 4, member="n"), rest).passed
    assert verdict(delivered(0, 1, done_ms=5), delivered(1, 5, member="n"), rest).passed


def test_a_record_of_a_killed_member_holds_its_key_until_it_was_processed_again() -> None:
    dead, again = delivered(0, 1, done_ms=-1), delivered(0, 7, member="n")
    assert not verdict(dead, delivered(1, 4, member="n"), again, delivered(2, 1)).passed
    found = verdict(dead, again, delivered(1, 8, member="n"), delivered(2, 1))
    assert found.passed
    assert (found.again, found.confirmed_again) == (1, 0)


def all_and(again_at_ms: int) -> tuple[Processed, ...]:
    return (delivered(0, 1), delivered(1, 2), delivered(2, 3), delivered(2, again_at_ms))


def test_what_was_confirmed_never_comes_again() -> None:
    found = verdict(*all_and(9), acked=(told(2, 4),))
    assert not found.passed
    assert found.confirmed_again == 1
    assert verdict(*all_and(9), acked=(told(2, 4, "NETWORK_EXCEPTION"),)).passed


def test_a_flush_excuses_only_what_was_not_committed_to_kafka() -> None:
    def flush(*committed: int, at_ms: int = 6, down_ms: tuple[int, int] = (0, 0)) -> Flush:
        places = frozenset(("t", 0, offset) for offset in committed)
        calm = ((0, down_ms[0] * MS), (down_ms[1] * MS, at_ms * MS))
        return Flush(at_ms * MS, (at_ms + 1) * MS, places, calm, 5_000)

    assert verdict(*all_and(9), acked=(told(2, 4),), flushes=(flush(),)).passed
    assert not verdict(*all_and(9), acked=(told(2, 4),), flushes=(flush(2),)).passed
    assert not verdict(*all_and(5), acked=(told(2, 4),), flushes=(flush(),)).passed, "before it"
    assert not verdict(*all_and(9), acked=(told(2, 8),), flushes=(flush(),)).passed, "told after"
    late = verdict(*all_and(20_001), acked=(told(2, 4),), flushes=(flush(at_ms=20_000),))
    assert not late.passed, "commits are due every 5 s"
    for down_ms, excused in (((7_000, 15_000), True), ((9_000, 15_000), False)):
        flushed = flush(at_ms=20_000, down_ms=down_ms)
        assert verdict(*all_and(20_001), acked=(told(2, 4),), flushes=(flushed,)).passed is excused


def test_a_seed_is_one_plan_and_the_seeds_together_try_everything() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    assert plans == [plan_of(seed) for seed in range(300)]
    strikes = [strike for plan in plans for strike in plan.strikes]
    assert {victim for strike in strikes for victim in strike.victims} == set(Victim)
    alone = {strike.victims[0] for strike in strikes if len(strike.victims) == 1}
    assert alone == set(Victim)
    assert all(sorted(strike.victims) == sorted(strike.returns) for strike in strikes)
    for strike in strikes:
        old = Victim.OLD_REDIS in strike.victims
        assert old is (0 < strike.copied_at_share < strike.at_share)
        assert strike.forgets is (old or Victim.FLUSH in strike.victims)
