"""Fifteen pitfalls of a server that answers the share APIs (KIP-932), with stock clients: one test
or more each, by number.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import confluent_kafka
import crc32c
import pytest
from confluent_kafka import Producer

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.clients.wire_client import (
    ANSWER_SECONDS_MAX,
    Fetched,
    ShareSession,
    WireClient,
    fetched_partitions,
)
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce, set_group_config
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
Opened = Callable[..., ShareSession]


@pytest.fixture
def opened(gateway: GatewayProcess, topic: Topic, share_group: Group) -> Iterator[Opened]:
    """A joined member of a fresh group on a fresh topic that holds `records`."""
    sessions: list[ShareSession] = []

    def build(
        records: list[tuple[bytes | None, bytes | None]],
        *,
        group: str = "group",
        config: dict[str, str | int] | None = None,
    ) -> ShareSession:
        name = topic(partitions=1)
        produce(gateway.bootstrap, name, records, config=config)
        sessions.append(ShareSession(gateway.bootstrap, share_group(group), name).join())
        return sessions[-1]

    yield build
    for session in sessions:
        session.disconnect()


def all_fetched(session: ShareSession, count: int, *, per_fetch: int = 500) -> list[Fetched]:
    """Fetches and accepts until `count` records came."""
    found: list[Fetched] = []
    total = 0
    while total < count:
        got = session.fetch_some(max_records=per_fetch)
        acks = {0: [(first, last, [ACCEPT]) for first, last, _ in got.ranges]}
        assert session.acknowledge(acks) == {0: 0}
        total += len(got.acquired)
        found.append(got)
    return found


def test_pitfall_01_produce_and_fetch_are_offered_to_librdkafka(gateway: GatewayProcess) -> None:
    """librdkafka refuses ShareFetch unless ApiVersions also lists Produce >= 3 and Fetch >= 4."""
    for address in (gateway.bootstrap, gateway.address_of(1)):
        with WireClient(address) as client:
            offers = client.call(ApiKey.API_VERSIONS, 0, {})["ApiKeys"]
        offered = {offer["ApiKey"]: (offer["MinVersion"], offer["MaxVersion"]) for offer in offers}
        assert offered[ApiKey.PRODUCE][0] == 0, "KAFKA-18659: old librdkafka wants it"
        assert offered[ApiKey.PRODUCE][1] >= 3
        assert offered[ApiKey.FETCH][0] <= 4 <= offered[ApiKey.FETCH][1]


def test_pitfall_02_acquired_ranges_cover_exactly_the_records(opened: Opened) -> None:
    """Ascending, disjoint, one per contiguous run, and the bytes hold just those records."""
    shuffled = [b"k%d" % (at % 90) for at in range(1_000)]
    random.Random(2).shuffle(shuffled)
    session = opened([(key, b"v") for key in shuffled])
    for got in all_fetched(session, 1_000, per_fetch=37):
        begins_and_ends = [at for first, last, _ in got.ranges for at in (first, last)]
        assert begins_and_ends == sorted(begins_and_ends)
        assert got.offsets == sorted(set(got.offsets)), "disjoint"
        runs_meet = [
            (before, after)
            for before, after in pairwise(got.ranges)
            if before[1] + 1 == after[0] and before[2] == after[2]
        ]
        assert not runs_meet, "one range per contiguous run of one delivery count"
        assert [offset for offset, _, _ in got.records] == got.offsets


def test_pitfall_03_gap_never_settles_a_record_that_exists(
    gateway: GatewayProcess, opened: Opened
) -> None:
    """A GAP acknowledgement is a release: the record comes again, and the log tells of it."""
    session = opened([(b"k", b"0"), (b"k", b"1")])
    got = session.fetch_some()
    assert got.acquired == [(0, 1)]
    assert session.acknowledge({0: [(0, 0, [GAP])]})[0] in (0, ErrorCode.NONE)
    again = session.fetch_some()
    assert again.acquired == [(0, 2)], "the same record, not the next of its key"
    wait_until(lambda: "gap" in gateway.log_text().lower(), what="a log line", deadline_s=20)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_pitfall_04_the_crc_is_right(opened: Opened, codec: str) -> None:
    """Checked by another library than the gateway's own reader, batch by batch."""
    config: dict[str, str | int] = {"compression.type": codec, "linger.ms": 50}
    session = opened([(b"k%d" % (at % 30), b"v" * at) for at in range(200)], config=config)
    batches = 0
    for got in all_fetched(session, 200, per_fetch=50):
        data, at = got.raw_records or b"", 0
        while at < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0] + 12
            crc = struct.unpack_from(">I", data, at + 17)[0]
            assert crc == crc32c.crc32c(data[at + 21 : at + size])
            batches += 1
            at += size
        assert at == len(data)
    assert batches >= 4


def test_pitfall_05_every_acknowledged_partition_is_answered(
    gateway: GatewayProcess, topic: Topic, share_group: Group
) -> None:
    """Also when nothing is fetched; and Records is empty, never null."""
    name = topic(partitions=3)
    for partition in range(3):
        produce(gateway.bootstrap, name, [(b"k", b"v")], partition=partition)
    with ShareSession(gateway.bootstrap, share_group(), name).join() as session:
        held: dict[int, Fetched] = {}
        deadline = time.monotonic() + patient_s(30)
        while len(held) < 3 and time.monotonic() < deadline:
            held |= {at: got for at, got in session.fetch().items() if got.acquired}
        acks = {at: [(got.offsets[0], got.offsets[0], [ACCEPT])] for at, got in held.items()}
        answer = session.fetch_message(acks=acks, max_wait_ms=10)
        parts = fetched_partitions(answer)
        assert set(parts) >= {0, 1, 2}
        assert all(part.acknowledge_error == 0 for part in parts.values())
        assert all(part.raw_records is not None for part in parts.values())


def test_pitfall_06_max_records_0_only_acknowledges(opened: Opened) -> None:
    """Nothing is acquired and nothing is waited for: a fetch may wait longer than this client
    waits for its answer.
    """
    session = opened([(b"a", b"0"), (b"b", b"1")])
    for_ever_ms = 20 * round(ANSWER_SECONDS_MAX * 1_000)
    parts = session.fetch(max_records=0, max_wait_ms=for_ever_ms)
    assert not any(part.acquired or part.raw_records for part in parts.values())
    got = session.fetch_some(max_records=1)
    acks = {0: [(got.offsets[0], got.offsets[0], [ACCEPT])]}
    parts = session.fetch(acks=acks, max_records=0, max_wait_ms=for_ever_ms)
    assert parts[0].acknowledge_error == 0
    assert not parts[0].acquired


def test_pitfall_07_a_release_cannot_invert_a_key(opened: Opened) -> None:
    """One record of a key in flight: k@n+1 is not out when k@n is released, and comes after it."""
    session = opened([(b"k", b"%d" % at) for at in range(4)], group="drop")
    got = session.fetch_some()
    assert got.offsets == [0]
    assert session.acknowledge({0: [(0, 0, [RELEASE])]}) == {0: 0}
    seen: list[tuple[int, int]] = []
    while len(seen) < 4:
        got = session.fetch_some()
        assert len(got.acquired) == 1
        seen += got.acquired
        at = got.offsets[0]
        assert session.acknowledge({0: [(at, at, [ACCEPT])]}) == {0: 0}
    assert seen == [(0, 2), (1, 1), (2, 1), (3, 1)]


def test_pitfall_07_a_session_reopened_fences_what_it_held(opened: Opened) -> None:
    """The lock of the old session is gone with it, long before its 30 s are over."""
    session = opened([(b"k", b"0")])
    got = session.fetch_some()
    assert got.acquired == [(0, 1)]
    session.epoch = 0
    again = session.fetch_some()
    assert again.acquired == [(0, 2)]
    assert session.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: 0}


def test_pitfall_08_acknowledgements_lost_with_the_connection_mean_redelivery(
    opened: Opened,
) -> None:
    """At least once: records not acknowledged before the connection broke come again, in
    order.
    """
    session = opened([(b"k%d" % (at % 5), b"%d" % at) for at in range(10)])
    assert session.fetch_count(5).offsets == [0, 1, 2, 3, 4]
    session.disconnect()
    again = ShareSession(session.bootstrap, session.group, session.topic).join()
    with again:
        got: list[tuple[int, int]] = []
        while len(got) < 10:
            part = again.fetch_some(within_s=20)
            acks = {0: [(first, last, [ACCEPT]) for first, last, _ in part.ranges]}
            assert again.acknowledge(acks) == {0: 0}
            got += part.acquired
        counts = dict(got)
        assert {counts[at] for at in range(5)} == {2}
        assert {counts[at] for at in range(5, 10)} == {1}


def test_pitfall_09_a_session_is_its_members_on_any_connection(opened: Opened) -> None:
    """Another member has none, 122, and changes nothing; the member itself may acknowledge on
    another connection, as with Kafka.
    """
    session = opened([(b"k", b"0")])
    assert session.fetch_some().offsets == [0]
    place = (session.bootstrap, session.group, session.topic)
    with ShareSession(*place) as stranger:
        answer = stranger.acknowledge({0: [(0, 0, [REJECT])]}, epoch=session.epoch)
        assert answer == {-1: ErrorCode.SHARE_SESSION_NOT_FOUND}
    with ShareSession(*place, member_id=session.member_id) as elsewhere:
        answer = elsewhere.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=session.epoch)
        assert answer == {0: 0}


def test_pitfall_10_members_are_not_sent_what_others_get(opened: Opened) -> None:
    """A batch of keys of many members is cut: this member's share, and hardly a byte more."""
    records: list[tuple[bytes | None, bytes | None]] = [
        (b"k%d" % at, b"secret-%03d-" % at + b"x" * 1_000) for at in range(100)
    ]
    session = opened(records)
    got = session.fetch_some(max_records=3)  # of one batch, which is read whole
    assert len(got.acquired) == 3
    data = got.raw_records or b""
    assert data.count(b"secret-") == 3
    assert len(data) < 3 * 1_200


def test_pitfall_11_aborted_and_control_records_are_never_acquired(
    gateway: GatewayProcess, topic: Topic, share_group: Group
) -> None:
    name, transaction = topic(partitions=1), share_group("tx")
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": transaction})
    producer.init_transactions(20)
    for outcome in (b"aborted", b"kept"):
        producer.begin_transaction()
        for at in range(5):
            producer.produce(name, key=b"k%d" % at, value=outcome)
        producer.flush(20)
        if outcome == b"kept":
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    with ShareSession(gateway.bootstrap, share_group(), name).join() as session:
        got = all_fetched(session, 5)
        # Offsets 0-4 aborted, 5 the abort marker, 6-10 kept, 11 the commit marker.
        assert [at for part in got for at in part.offsets] == [6, 7, 8, 9, 10]
        assert {value for part in got for _, _, value in part.records} == {b"kept"}
        assert not any(part.acquired for part in session.fetch(max_wait_ms=500).values())


def test_pitfall_12_where_a_group_starts_is_the_group_config(
    gateway: GatewayProcess, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """share.auto.offset.reset, set with any admin client through the gateway, wins over
    keyway.yaml.
    """
    name, group = topic(partitions=1), share_group("latest")
    produce(gateway.bootstrap, name, [(b"k", b"old")])
    set_group_config(gateway.bootstrap, group, {"share.auto.offset.reset": "earliest"})
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, 0)})
    member.close()


def test_pitfall_13_offsets_are_the_upstreams_own(opened: Opened) -> None:
    """A consumer shows the offsets that a tool finds in the log."""
    session = opened([(b"k%d" % at, b"%d" % at) for at in range(20)])
    got = [row for part in all_fetched(session, 20, per_fetch=7) for row in part.records]
    assert got == [(at, b"k%d" % at, b"%d" % at) for at in range(20)]


def test_pitfall_14_upstream_share_groups_stay_apart(kafka: KafkaCluster, opened: Opened) -> None:
    """The upstream has share groups of its own: it never hears of the gateway's."""
    assert kafka.share_groups
    session = opened([(b"k", b"v")])
    session.fetch_some()
    with WireClient(kafka.bootstrap_servers) as upstream:
        listed = upstream.call(ApiKey.LIST_GROUPS, 5, {"TypesFilter": ["share"]})["Groups"]
    assert session.group not in [row["GroupId"] for row in listed]
    body = {"GroupIds": [session.group], "IncludeAuthorizedOperations": False}
    described = session.coordinator.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, body)["Groups"][0]
    assert [member["MemberId"] for member in described["Members"]] == [session.member_id]


def test_pitfall_15_the_preview_client_is_the_one_tested() -> None:
    """librdkafka's share consumer is a preview (v1, no RENEW): the version these tests are
    about.
    """
    assert tuple(map(int, str(confluent_kafka.__version__).split(".")[:2])) >= (2, 16)
    assert hasattr(confluent_kafka, "ShareConsumer")
