"""One key and the hot keys, for operators."""

from __future__ import annotations

from dispatcher.core.model import AckType, MemberId, PoisonPolicy, Policy, Reason
from dispatcher.core.reports.key_stats import KeyStats
from dispatcher.core.reports.picture import OffsetState
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.ring import Ring
from tests.rig.playbook import Playbook

S = OffsetState
C1, C2 = MemberId("c1"), MemberId("c2")


def test_a_key_from_its_first_record_to_its_last() -> None:
    policy = Policy(rejected=PoisonPolicy.BLOCK, backoff_base_ms=500)
    play = Playbook(policy).join("c1").produce(b"a", b"b", b"a")
    core = play.core
    assert core.key_stats(b"a") == KeyStats(b"a", S.READY, C1, records=2, first_offset=0)
    play.acquire("c1", 1)
    held = KeyStats(b"a", S.IN_FLIGHT, C1, holder=C1, records=2, in_flight=1, first_offset=0)
    assert core.key_stats(b"a") == held
    play.ack("c1", 0, AckType.RELEASE)
    waits = core.key_stats(b"a")
    assert (waits.state, waits.deliveries, waits.reason) == (S.BACKING_OFF, 1, Reason.RELEASED)
    assert waits.due_ms == play.now_ms + 500
    assert (waits.holder, waits.in_flight) == (None, 0)
    play.wait(500)
    play.acquire("c1", 1)
    play.ack("c1", 0, AckType.REJECT)
    parked = core.key_stats(b"a")
    assert (parked.state, parked.deliveries, parked.reason) == (S.PARKED, 2, Reason.REJECTED)
    assert parked.due_ms is None


def test_a_key_without_unsettled_records_has_an_owner() -> None:
    play = Playbook().join("c1", "c2")
    (mine,) = play.keys_of("c2", 1)
    assert play.core.key_stats(mine) == KeyStats(mine, S.SETTLED, C2)
    play.produce(mine)
    play.acquire("c2")
    play.ack("c2", 0)
    assert play.core.key_stats(mine) == KeyStats(mine, S.SETTLED, C2)
    assert Playbook().core.key_stats(mine) == KeyStats(mine, S.SETTLED, None), "nobody is there"


def test_a_key_nobody_takes() -> None:
    play = Playbook().join("c1", filters=(b"eu-*",))
    assert play.core.key_stats(b"us-1").owner is None
    assert play.core.key_stats(b"eu-1").owner == "c1"


def test_a_key_that_drains() -> None:
    play = Playbook().join("c1", "c2")
    (key,) = play.keys_of("c2", 1)
    play.leave("c2").produce(key, key)
    play.acquire("c1")
    play.join("c2")
    stats = play.core.key_stats(key)
    assert (stats.owner, stats.holder, stats.records) == ("c2", "c1", 2)


def test_hot_keys() -> None:
    for policy in (Policy(), Policy(reliable=False)):
        play = Playbook(policy).join("c1")
        play.produce(b"a", b"b", b"b", None, None, None, b"c", b"b", b"c", b"a")
        hot = play.core.hot_keys(2)
        assert [(stats.key, stats.records, stats.first_offset) for stats in hot] == [
            (b"b", 3, 1),
            (b"a", 2, 0),
        ]
        assert [stats.key for stats in play.core.hot_keys(9)] == [b"b", b"a", b"c"]
        assert hot[0] == play.core.key_stats(b"b")


def test_keys_by_their_hash() -> None:
    for policy in (Policy(), Policy(reliable=False)):
        play = Playbook(policy).join("c1").produce(b"a", None, b"b", b"a")
        assert play.core.keys_with_hash(int(key_hash32(b"a"))) == [b"a"]
        assert play.core.keys_with_hash(1) == []


def test_an_unreliable_key() -> None:
    play = Playbook(Policy(reliable=False)).join("c1").produce(b"a", b"b", b"a")
    assert play.core.key_stats(b"a") == KeyStats(b"a", S.READY, C1, records=2, first_offset=0)
    assert play.core.key_stats(b"x") == KeyStats(b"x", S.SETTLED, C1)


def test_the_shares_of_a_ring() -> None:
    ring = Ring(["a", "b", "c"])
    shares = ring.shares()
    assert abs(sum(shares) - 1) < 1e-9
    for index, share in enumerate(shares):
        sampled = sum(ring.owner(at << 20) == index for at in range(4_096)) / 4_096
        assert abs(share - sampled) < 0.01
    assert Ring([]).shares() == []
    assert abs(Ring(["a"]).shares()[0] - 1) < 1e-9
