"""The share protocol by hand: epochs, memberships, foreign and malformed acknowledgements.

Most of it also holds for Kafka 4.3.1's own share groups (KEYWAY_TESTS_DIRECT=1), the oracle of the
error codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from tests.rig.clients.wire_client import (
    ANSWER_SECONDS_MAX,
    ShareSession,
    WireClient,
    fetched_partitions,
)
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce, set_group_config

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
ACCEPT, RELEASE = 1, 2
GIVEN_BACK_S_MAX = 120.0  # far below the locks of a patient group


@pytest.fixture
def session(front: str, topic: Topic, share_group: Group) -> Iterator[ShareSession]:
    """A joined member; its topic holds ten records of ten keys."""
    yield from joined(front, share_group(), topic(partitions=1))


@pytest.fixture
def patient(front: str, topic: Topic, share_group: Group) -> Iterator[ShareSession]:
    """Like `session`; the locks of its group last ten minutes."""
    yield from joined(front, share_group("patient"), topic(partitions=1))


def joined(front: str, group: str, topic: str) -> Iterator[ShareSession]:
    produce(front, topic, [(b"k%d" % at, b"%d" % at) for at in range(10)])
    with ShareSession(front, group, topic) as member:
        yield member.join()


def test_records_are_acquired_and_accepted(session: ShareSession) -> None:
    with session:
        got = session.fetch_some()
        assert got.error == 0
        assert {count for _, count in got.acquired} == {1}
        acks = {0: [(first, last, [ACCEPT]) for first, last, _ in got.ranges]}
        assert session.acknowledge(acks) == {0: 0}
        session.leave()


def test_a_group_of_latest_starts_at_its_first_fetch(
    front: str, topic: Topic, fresh_name: Group
) -> None:
    """Not when its first member joins: a record that comes in between is before the start, as with
    Kafka.
    """
    name, group = topic(partitions=1), fresh_name("newest")
    set_group_config(front, group, {"share.auto.offset.reset": "latest"})
    with ShareSession(front, group, name) as member:
        member.join()
        produce(front, name, [(b"k", b"before the first fetch")])
        early = member.fetch().get(0)
        assert early is None or early.acquired == []
        produce(front, name, [(b"k", b"after it")])
        assert [first for first, _ in member.fetch_some().acquired] == [1]
        member.leave()


def test_heartbeat_of_an_unknown_member(session: ShareSession) -> None:
    with session:
        stranger = ShareSession(session.bootstrap, session.group, session.topic)
        with stranger:
            assert stranger.heartbeat(3)["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_with_a_foreign_epoch(session: ShareSession) -> None:
    with session:
        answer = session.heartbeat(session.member_epoch + 5)
        assert answer["ErrorCode"] == ErrorCode.FENCED_MEMBER_EPOCH
        assert session.heartbeat(0, topics=[session.topic])["ErrorCode"] == 0, "rejoins at 0"


def test_heartbeat_after_leaving(session: ShareSession) -> None:
    with session:
        assert session.heartbeat(-1)["MemberEpoch"] == -1
        answer = session.heartbeat(session.member_epoch)
        assert answer["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_without_topics_at_joining(front: str, topic: Topic, share_group: Group) -> None:
    with ShareSession(front, share_group(), topic(partitions=1)) as member:
        assert member.heartbeat(0, topics=None)["ErrorCode"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [1, 7])
def test_fetch_without_a_session(session: ShareSession, epoch: int) -> None:
    with session:
        answer = session.fetch_message(epoch=epoch)
        assert answer["ErrorCode"] == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 9])
def test_fetch_with_a_wrong_epoch(session: ShareSession, epoch: int) -> None:
    with session:
        session.fetch()
        answer = session.fetch_message(epoch=epoch)
        assert answer["ErrorCode"] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        # The answer every client gives: open again at 0, and go on.
        session.epoch = 0
        assert session.fetch_message()["ErrorCode"] == 0


def test_acknowledge_without_a_session(session: ShareSession) -> None:
    with session:
        answer = session.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=4)
        assert answer == {-1: ErrorCode.SHARE_SESSION_NOT_FOUND}


def test_acknowledge_with_a_wrong_epoch(session: ShareSession) -> None:
    with session:
        got = session.fetch_some()
        first, last, _ = got.ranges[0]
        answer = session.acknowledge({0: [(first, last, [ACCEPT])]}, epoch=99)
        assert answer == {-1: ErrorCode.INVALID_SHARE_SESSION_EPOCH}
        assert session.acknowledge({0: [(first, last, [ACCEPT])]}) == {0: 0}, "nothing was lost"


def test_acknowledge_at_epoch_0(session: ShareSession) -> None:
    with session:
        answer = session.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=0)
        assert answer == {-1: ErrorCode.INVALID_SHARE_SESSION_EPOCH}


def test_fetch_with_acknowledgements_at_epoch_0(session: ShareSession) -> None:
    with session:
        answer = session.fetch_message(epoch=0, acks={0: [(0, 0, [ACCEPT])]})
        assert answer["ErrorCode"] == ErrorCode.INVALID_REQUEST


def test_acknowledgement_of_records_another_member_holds(session: ShareSession) -> None:
    with ShareSession(session.bootstrap, session.group, session.topic) as thief:
        thief.join()
        held = session.fetch_some()
        first, last, _ = held.ranges[0]
        thief.fetch(max_records=1, max_wait_ms=100)
        for by in ("acknowledge", "fetch"):
            if by == "acknowledge":
                code = thief.acknowledge({0: [(first, last, [ACCEPT])]})[0]
            else:
                answer = thief.fetch_message(acks={0: [(first, last, [ACCEPT])]}, max_records=0)
                code = fetched_partitions(answer)[0].acknowledge_error
            assert code == ErrorCode.INVALID_RECORD_STATE, by
        mine = {0: [(begin, end, [ACCEPT]) for begin, end, _ in held.ranges]}
        assert session.acknowledge(mine) == {0: 0}, "the holder's claim is untouched"


@pytest.mark.parametrize("offset", [500, 5_000_000_000])
def test_acknowledgement_of_offsets_never_delivered(session: ShareSession, offset: int) -> None:
    with session:
        session.fetch_some()
        answer = session.acknowledge({0: [(offset, offset, [ACCEPT])]})
        # Kafka 4.3.1 says INVALID_REQUEST past the end of its window.
        assert answer[0] in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)


def test_acknowledgement_twice(session: ShareSession) -> None:
    with session:
        got = session.fetch_some()
        first, last, _ = got.ranges[0]
        assert session.acknowledge({0: [(first, last, [ACCEPT])]}) == {0: 0}
        again = session.acknowledge({0: [(first, last, [RELEASE])]})
        # Kafka says nothing about offsets below its window.
        assert again[0] in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.NONE)
        for part in session.fetch(max_wait_ms=1_500).values():
            assert first not in part.offsets, "a settled record never comes back"


@pytest.mark.parametrize(
    ("first", "last", "types"),
    [(5, 3, [1]), (0, 2, [1, 1]), (0, 0, [9]), (0, 0, [-1]), (0, 1, []), (1, 2, [1, 1, 1])],
)
def test_malformed_acknowledgements(
    session: ShareSession, first: int, last: int, types: list[int]
) -> None:
    with session:
        held = session.fetch_some()
        answer = session.acknowledge({0: [(first, last, types)]})
        code = next(iter(answer.values()))
        assert code == ErrorCode.INVALID_REQUEST
        mine = {0: [(begin, end, [ACCEPT]) for begin, end, _ in held.ranges]}
        assert session.acknowledge(mine) == {0: 0}, "nothing of it was applied"


def test_ranges_that_overlap(session: ShareSession) -> None:
    """The same offset twice in one request: refused, or counted once; never an internal error."""
    with session:
        first, last, _ = session.fetch_some().ranges[0]
        answer = session.acknowledge({0: [(first, last, [ACCEPT]), (first, first, [RELEASE])]})
        codes = {ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE}
        assert next(iter(answer.values())) in codes


def test_unknown_topic_id_and_partition(gateway: GatewayProcess, session: ShareSession) -> None:
    assert gateway.running  # Kafka 4.3.1 itself answers UNKNOWN_SERVER_ERROR for the whole request
    with session:
        answer = session.fetch_message(epoch=0, topic_id=b"\x01" * 16)
        assert answer["ErrorCode"] == 0
        assert fetched_partitions(answer)[0].error == ErrorCode.UNKNOWN_TOPIC_ID
        answer = session.fetch_message(epoch=0, partitions=[77])
        parts = fetched_partitions(answer)
        assert parts[77].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_closing_the_session_gives_everything_back_at_once(patient: ShareSession) -> None:
    with ShareSession(patient.bootstrap, patient.group, patient.topic) as heir:
        held = patient.fetch_some()
        heir.join()
        heir.fetch(max_wait_ms=100)
        assert patient.acknowledge({}, epoch=-1) == {}
        patient.heartbeat(-1)
        got: dict[int, int] = {}
        deadline = time.monotonic() + GIVEN_BACK_S_MAX
        while not set(held.offsets) <= set(got):
            assert time.monotonic() < deadline, f"only {sorted(got)} of {held.offsets}"
            for part in heir.fetch(max_wait_ms=200).values():
                got |= dict(part.acquired)
        assert {got[offset] for offset in held.offsets} == {2}


def test_acknowledgements_with_the_closing_request_count(patient: ShareSession) -> None:
    with ShareSession(patient.bootstrap, patient.group, patient.topic) as heir:
        held = patient.fetch_some()
        first = held.offsets[0]
        assert patient.acknowledge({0: [(first, first, [ACCEPT])]}, epoch=-1) == {0: 0}
        patient.heartbeat(-1)
        heir.join()
        got: set[int] = set()
        deadline = time.monotonic() + GIVEN_BACK_S_MAX
        while len(got) < 9 and time.monotonic() < deadline:
            for part in heir.fetch(max_wait_ms=200).values():
                got |= set(part.offsets)
        assert got == set(range(10)) - {first}


def test_an_empty_fetch_waits_and_wakes_up(front: str, topic: Topic, share_group: Group) -> None:
    """MaxWaitMs is honoured when nothing comes, and not waited for when something does."""
    name = topic(partitions=1)
    with ShareSession(front, share_group(), name).join() as member:
        member.fetch(max_wait_ms=10)
        started = time.monotonic()
        assert not any(part.acquired for part in member.fetch(max_wait_ms=700).values())
        assert time.monotonic() - started > 0.5
        member.leader.send(
            ApiKey.SHARE_FETCH,
            1,
            {
                "GroupId": member.group,
                "MemberId": member.member_id,
                "ShareSessionEpoch": member.epoch,
                "MaxWaitMs": 20 * round(ANSWER_SECONDS_MAX * 1_000),  # longer than it is waited for
                "MinBytes": 1,
                "MaxBytes": 1 << 20,
                "MaxRecords": 10,
                "BatchSize": 10,
                "Topics": [],
                "ForgottenTopicsData": [],
            },
        )
        produce(front, name, [(b"k", b"v")])
        member.leader.receive_frame()  # the produce woke the fetch


def test_the_second_version_is_spoken(
    gateway: GatewayProcess, topic: Topic, share_group: Group
) -> None:
    """v2 (Java): the lock timeout is in the answers; a renewal request acquires nothing."""
    name = topic(partitions=1)
    produce(gateway.bootstrap, name, [(b"a", b"1"), (b"b", b"2")])
    with ShareSession(gateway.bootstrap, share_group(), name, version=2).join() as member:
        got = member.fetch_some(max_records=1)
        assert len(got.acquired) == 1
        answer = member.fetch_message(max_records=0)
        assert answer["AcquisitionLockTimeoutMs"] == 30_000


def test_api_versions_offers_the_share_apis(gateway: GatewayProcess) -> None:
    with WireClient(gateway.bootstrap) as client:
        answer = client.call(
            ApiKey.API_VERSIONS, 3, {"ClientSoftwareName": "t", "ClientSoftwareVersion": "1"}
        )
    offered = {api["ApiKey"]: (api["MinVersion"], api["MaxVersion"]) for api in answer["ApiKeys"]}
    assert offered[ApiKey.SHARE_GROUP_HEARTBEAT] == (1, 1)
    assert offered[ApiKey.SHARE_GROUP_DESCRIBE] == (1, 1)
    assert offered[ApiKey.SHARE_FETCH] == (1, 2)
    assert offered[ApiKey.SHARE_ACKNOWLEDGE] == (1, 2)
    internal = {83, 84, 85, 86, 87}
    assert not internal & set(offered), "the persister's APIs are the brokers' own"


def test_share_group_describe(gateway: GatewayProcess, session: ShareSession) -> None:
    with session:
        body = {"GroupIds": [session.group], "IncludeAuthorizedOperations": False}
        answer = session.coordinator.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, body)
        described = answer["Groups"][0]
        assert gateway.running
        assert described["ErrorCode"] == 0
        assert described["GroupState"] == "Stable"
        assert [member["MemberId"] for member in described["Members"]] == [session.member_id]
        assigned = described["Members"][0]["Assignment"]["TopicPartitions"]
        assert [part["TopicName"] for part in assigned] == [session.topic]
