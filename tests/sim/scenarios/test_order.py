"""Acceptance scenarios of Key-Shared dispatch: the owner of a key, and the order (1-3, 5-8, 11,
12, 16, 17, 26)."""

from __future__ import annotations

from random import Random

from dispatcher.core.model import AckType, MemberId, Policy, Reason, RecordsRead
from dispatcher.core.routing.ring import Router
from dispatcher.core.steps import MembersReady
from gateway.core.wire.records import Compression, Record, build, read_batch, scan, select
from tests.rig.playbook import Playbook


def test_01_affinity() -> None:
    play = Playbook().join("c1", "c2", "c3", "c4")
    rng = Random(1)
    keys = [b"key-%d" % i for i in range(300)] * 20
    rng.shuffle(keys)
    owner: dict[bytes, str] = {}
    last: dict[bytes, int] = {}
    play.produce(*keys[:1_500])
    taken = 1
    while taken:
        taken = 0
        for name in ("c1", "c2", "c3", "c4"):
            offsets = play.acquire(name)
            taken += len(offsets)
            for offset in offsets:
                key = keys[offset]
                assert owner.setdefault(key, name) == name
                assert last.get(key, -1) < offset
                last[key] = offset
            if offsets:
                play.acks(name, [(o, o, b"\1") for o in offsets])
    assert play.core.cursor == 1_500
    assert len(set(owner.values())) == 4


def test_02_a_newcomer_gets_nothing_of_a_key_that_another_holds() -> None:
    play = Playbook().join("c1", "c2", "c3")
    a = play.keys_of("c3")[0]
    play.leave("c3")
    first = next(m.member_id for m in play.core.members if a in play.keys_of(m.member_id, 50))
    play.produce(a, a, a)
    assert play.acquire(first, 1) == [0]
    play.join("c3")
    assert play.acquire("c3") == []
    play.leave(first, Reason.MEMBER_EVICTED)
    for offset in (0, 1, 2):
        assert play.acquire("c3") == [offset]
        play.ack("c3", offset)


def test_03_the_next_record_of_a_held_key_does_not_move_either() -> None:
    play = Playbook(Policy(in_flight_per_member_max=1)).join("c1", "c3")
    a = play.keys_of("c3")[0]
    play.leave("c3").produce(b"pad", a, a)
    play.acquire("c1")
    play.ack("c1", 0)
    assert play.acquire("c1") == [1]
    play.join("c3")
    assert play.acquire("c3") == []
    play.leave("c1")
    assert play.acquire("c3") == [1]
    play.ack("c3", 1)
    assert play.acquire("c3") == [2]


def test_05_drain_on_join() -> None:
    play = Playbook().join("c1", "c2")
    a, b = play.keys_of("c2", 2)
    play.leave("c2").produce(a)
    assert play.acquire("c1") == [0]
    play.join("c2").produce(a, b)
    assert play.acquire("c2") == [2], "b is delivered at once"
    (c1,) = [m for m in play.core.stats().members if m.member_id == "c1"]
    assert (c1.draining_keys, c1.in_flight, c1.draining_blocked) == (1, 1, 1)
    play.ack("c1", 0)
    assert play.acquire("c2") == [1]
    assert all(m.draining_keys == 0 for m in play.core.stats().members)


def test_06_a_key_returns_home() -> None:
    for by_leaving in (True, False):
        play = Playbook().join("c1", "c2")
        a = play.keys_of("c2")[0]
        play.leave("c2").produce(a, a)
        play.acquire("c1")
        play.join("c2").leave("c2")
        if by_leaving:
            play.close("c1")
            assert play.acquire("c1", session="s2") == [0]
        else:
            play.ack("c1", 0)
            play.expect(MembersReady([MemberId("c1")]))
            assert play.acquire("c1") == [1]
        assert all(m.draining_keys == 0 for m in play.core.stats().members)


def test_07_a_backlog_is_delivered_without_traffic() -> None:
    play = Playbook().join("c1", "c2").produce(*[b"key-%d" % i for i in range(100)])
    assert play.acquire("c2") != []
    held = play.acquire("c1")
    play.lose("c1").wait(2_500)
    play.wait(500).expect(MembersReady([MemberId("c1")]))
    play.leave("c1").expect(MembersReady([MemberId("c2")]))
    assert play.acquire("c2") == held


def test_08_a_newcomer_that_never_fetches() -> None:
    play = Playbook().join("c1", "c2")
    mine, other = play.keys_of("c1")[0], play.keys_of("c2")[0]
    play.produce(*[mine, other] * 5)
    for offset in range(0, 10, 2):
        assert play.acquire("c1") == [offset]
        play.ack("c1", offset)
    play.leave("c2")
    for offset in range(1, 10, 2):
        assert play.acquire("c1") == [offset]
        play.ack("c1", offset)


def test_11_an_owner_at_capacity_is_not_overtaken() -> None:
    """tests/property/test_window.py takes random steps of the same."""
    play = Playbook(Policy(in_flight_per_member_max=1)).join("c1").produce(b"k0", b"k1")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    play.produce(b"k1")
    assert play.acquire("c1") == [1]
    play.ack("c1", 1)
    assert play.acquire("c1") == [2]


def test_12_no_rotation_when_the_owner_goes_down_at_the_ack() -> None:
    """k1 unacknowledged, k2 and k3 queued."""
    play = Playbook().join("c1").produce(b"k", b"k", b"k")
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    play.leave("c1", Reason.MEMBER_EVICTED).join("c1")
    assert play.acquire("c1") == [1]
    play.ack("c1", 1)
    assert play.acquire("c1") == [2]


def test_16_nack_order() -> None:
    for event in ("nothing", "consumer dies", "key moves"):
        play = Playbook(Policy(backoff_base_ms=2_000)).join("c1")
        seen: list[int] = []
        play.produce(b"x", b"x", b"y", b"x", b"y")
        assert play.acquire("c1") == [0, 2]
        play.ack("c1", 0, AckType.RELEASE)
        play.ack("c1", 2)
        assert play.acquire("c1") == [4], "y is unaffected"
        play.ack("c1", 4)
        name = "c1"
        if event == "consumer dies":
            play.join("c2").leave("c1", Reason.MEMBER_EVICTED)
            name = "c2"
        elif event == "key moves":
            play.join(*[f"d{i}" for i in range(20)])
            members = play.core.members
            name = members[Router(members).owner_of(b"x", 0)].member_id
            assert name != "c1"
        assert play.acquire(name) == []
        play.wait(2_000)
        for _ in range(3):
            (offset,) = play.acquire(name)
            seen.append(offset)
            play.ack(name, offset)
        assert seen == [0, 1, 3]


def test_17_two_nacks_of_a_prefetched_key() -> None:
    """PIP-493: records prefetched behind a failed one come back uncounted, and behind it."""
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(*[b"a"] * 5)
    assert play.acquire("c1") == [0, 1, 2]
    assert play.acquire("c1") == []
    play.ack("c1", 0, AckType.RELEASE)
    assert play.acquire("c1") == [], "3 is behind the record that failed"
    play.ack("c1", [1, 2], AckType.RELEASE)
    assert play.acquire("c1") == []
    play.wait(1_000)
    assert play.acquire("c1") == [0]
    assert play.delivered().attempts == [2]
    play.ack("c1", 0)
    assert play.acquire("c1") == [1]
    assert play.delivered().attempts == [1], "returned, not redelivered"
    play.ack("c1", 1)
    assert play.acquire("c1") == [2]
    play.ack("c1", 2)
    assert play.acquire("c1") == [3, 4]


def test_17_an_earlier_nack_comes_before_a_later_one() -> None:
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(*[b"a"] * 3)
    play.acquire("c1")
    play.ack("c1", 1, AckType.RELEASE)
    play.ack("c1", 0, AckType.RELEASE)
    play.ack("c1", 2)
    play.wait(1_000)
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    assert play.acquire("c1") == [1]


def test_26_a_batch_of_many_keys_is_split() -> None:
    """Each record goes to its key's owner, in order, as it was produced, though one producer sent
    all of them in one compressed batch.
    """
    produced = [
        Record(at, 1_700_000_000_000 + at, b"key-%d" % (at % 50), b"v%d" % at, [("h", b"%d" % at)])
        for at in range(200)
    ]
    (batch,) = scan(build(produced, base_offset=0, compression=Compression.ZSTD))
    names = ("c1", "c2", "c3", "c4")
    play = Playbook().join(*names)
    play.log_end = 200
    play.on(RecordsRead(0, 200, batch.offsets, batch.keys, play.now_ms))
    received: dict[bytes | None, list[Record]] = {}
    owners: dict[bytes | None, set[str]] = {}
    while play.core.cursor < 200:
        for name in names:
            offsets = play.acquire(name)
            for part in scan(select(batch, offsets, records_max=500)) if offsets else ():
                for record in read_batch(part):
                    received.setdefault(record.key, []).append(record)
                    owners.setdefault(record.key, set()).add(name)
            play.ack(name, offsets)
    assert received == {key: produced[at::50] for at, key in enumerate(batch.keys[:50])}
    assert all(len(names_of) == 1 for names_of in owners.values())
    assert len(set.union(*owners.values())) == 4


def test_26_records_without_a_key_are_spread_and_in_no_order() -> None:
    """The documented choice: each is an order unit of its own."""
    names = ("c1", "c2", "c3", "c4")
    play = Playbook().join(*names).produce(*[None] * 400)
    taken = {name: play.acquire(name) for name in names}
    assert sorted(offset for offsets in taken.values() for offset in offsets) == list(range(400)), (
        "all at once"
    )
    assert all(60 < len(offsets) < 140 for offsets in taken.values())
    play.ack("c1", taken["c1"][::-1])
    assert play.acquire("c1") == []
