"""Membership of a share group: joins, epochs, assignments, evictions."""

from __future__ import annotations

import pytest

from gateway.core.cluster.topology import PartitionInfo, Topic
from gateway.core.limits import GROUP_TOPIC_NAMES_MAX
from gateway.core.share.errors import FencedMemberEpoch, GroupFull, InvalidRequest, UnknownMember
from gateway.core.share.membership import (
    DEPARTED_MAX,
    EVERYBODY,
    START_MEMBERS_MAX,
    UNSEEN_MS_MAX,
    Heartbeat,
    ShareGroup,
)

ORDERS = Topic("orders", b"o" * 16, {0: PartitionInfo(1, 0), 1: PartitionInfo(1, 0)})
GROWN = Topic("orders", b"o" * 16, {p: PartitionInfo(1, 0) for p in range(4)})
TOPICS = {"orders": ORDERS}


def group(members_max: int = 20, assignment_interval_ms: int = 0, start_ms: int = 0) -> ShareGroup:
    return ShareGroup(
        "g",
        session_timeout_ms=45_000,
        disconnect_grace_ms=3_000,
        members_max=members_max,
        assignment_interval_ms=assignment_interval_ms,
        start_ms=start_ms,
    )


def beat(
    member: str = "m1",
    epoch: int = 0,
    topics: tuple[str, ...] | None = None,
    connection: int = 1,
) -> Heartbeat:
    if topics is None and epoch == 0:
        topics = ("orders",)
    return Heartbeat(member, epoch, None, topics, "client", "127.0.0.1", connection)


def test_a_join_gets_every_partition_and_an_epoch() -> None:
    answer = group().heartbeat(beat(), TOPICS.get, 0)
    assert answer.member_epoch == 1
    assert answer.assignment == {b"o" * 16: (0, 1)}
    assert answer.members_changed


def test_a_heartbeat_that_changes_nothing_carries_no_assignment() -> None:
    g = group()
    g.heartbeat(beat(), TOPICS.get, 0)
    answer = g.heartbeat(beat(epoch=1), TOPICS.get, 100)
    assert (answer.member_epoch, answer.assignment, answer.members_changed) == (1, None, False)


def test_a_grown_topic_moves_the_epoch_and_the_assignment() -> None:
    g = group()
    g.heartbeat(beat(), TOPICS.get, 0)
    answer = g.heartbeat(beat(epoch=1), {"orders": GROWN}.get, 100)
    assert answer.assignment == {b"o" * 16: (0, 1, 2, 3)}
    assert answer.member_epoch == 2
    # The answer was lost: the member comes with the epoch before, and gets the assignment again.
    again = g.heartbeat(beat(epoch=1), {"orders": GROWN}.get, 200)
    assert (again.member_epoch, again.assignment) == (2, answer.assignment)


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does() -> None:
    g = group()
    assert g.heartbeat(beat(), lambda _name: None, 0).assignment == {}
    assert g.heartbeat(beat(epoch=1), TOPICS.get, 1).assignment == {b"o" * 16: (0, 1)}


def test_names_that_no_topic_can_have_are_passed_over() -> None:
    g = group()
    joined = g.heartbeat(beat(topics=("^orders", "orders", ".", "", "o" * 250)), TOPICS.get, 0)
    assert joined.assignment == {b"o" * 16: (0, 1)}
    assert g.topics() == ["orders"]
    alone = g.heartbeat(beat("m2", topics=("^orders",)), TOPICS.get, 0)
    assert alone.assignment == {}
    continued = g.heartbeat(beat("m2", alone.member_epoch, ("^x", "orders")), TOPICS.get, 1)
    assert continued.assignment == {b"o" * 16: (0, 1)}


def test_another_member_does_not_move_the_epoch_of_the_first() -> None:
    g = group()
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    g.heartbeat(beat("m2"), TOPICS.get, 0)
    assert g.heartbeat(beat("m1", epoch=1), TOPICS.get, 1).member_epoch == 1


def test_leaving_answers_minus_one_and_frees_the_member() -> None:
    g = group()
    g.heartbeat(beat(), TOPICS.get, 0)
    answer = g.heartbeat(beat(epoch=-1), TOPICS.get, 1)
    assert (answer.member_epoch, answer.members_changed) == (-1, True)
    assert g.members == {}
    assert g.state == "Empty"


@pytest.mark.parametrize(
    ("heartbeat", "error"),
    [
        (beat(member=""), InvalidRequest),
        (beat(epoch=-1), UnknownMember),
        (beat(epoch=3), UnknownMember),
        (beat(epoch=-2), InvalidRequest),
        (beat(topics=()), InvalidRequest),
    ],
)
def test_refusals(heartbeat: Heartbeat, error: type[Exception]) -> None:
    with pytest.raises(error):
        group().heartbeat(heartbeat, TOPICS.get, 0)


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_wrong_epoch_is_fenced(epoch: int) -> None:
    g = group()
    g.heartbeat(beat(), TOPICS.get, 0)
    with pytest.raises(FencedMemberEpoch):
        g.heartbeat(beat(epoch=epoch), TOPICS.get, 1)


def test_the_member_limit_refuses_newcomers_only() -> None:
    g = group(members_max=1)
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    with pytest.raises(GroupFull):
        g.heartbeat(beat("m2"), TOPICS.get, 0)
    assert g.heartbeat(beat("m1"), TOPICS.get, 0).member_epoch >= 1


def test_a_silent_member_is_evicted_at_its_session_timeout() -> None:
    g = group()
    g.heartbeat(beat(), TOPICS.get, 0)
    assert g.evict_due(44_999) == []
    assert [m.member_id for m in g.evict_due(45_000)] == ["m1"]
    with pytest.raises(UnknownMember):
        g.heartbeat(beat(epoch=1), TOPICS.get, 45_001)


def test_a_member_without_connections_is_evicted_after_the_grace() -> None:
    g = group()
    g.heartbeat(beat(connection=1), TOPICS.get, 0)
    g.connected("m1", 2)
    g.connection_lost("m1", 1, 100)
    assert g.evict_due(10_000) == []  # one connection is left
    g.connection_lost("m1", 2, 10_000)
    assert g.evict_due(12_999) == []
    assert len(g.evict_due(13_000)) == 1


def test_a_member_that_reconnects_within_the_grace_stays() -> None:
    g = group()
    g.heartbeat(beat(connection=1), TOPICS.get, 0)
    g.connection_lost("m1", 1, 100)
    g.connected("m1", 9)
    assert g.evict_due(10_000) == []


@pytest.mark.parametrize("topics", [("b",), ("c", "b", "a"), ("b", "b"), ("a", "b"), ("b", "c")])
def test_who_subscribes_to_what(topics: tuple[str, ...]) -> None:
    g = group()
    g.heartbeat(beat(topics=topics), TOPICS.get, 0)
    for name in ("", "a", "b", "bb", "c", "d"):
        assert g.has_subscribers(name) is (name in topics)
        assert [member.member_id for member in g.subscribers(name)] == ["m1"] * (name in topics)


def test_subscribers_come_in_join_order() -> None:
    g = group()
    for member in ("m3", "m1", "m2"):
        g.heartbeat(beat(member), TOPICS.get, 0)
    assert [m.member_id for m in g.subscribers("orders")] == ["m3", "m1", "m2"]
    assert g.subscribers("other") == []


def test_topics_of_the_same_subscribers_are_alike() -> None:
    g = group()
    g.heartbeat(beat("m1", topics=("a", "b", "c")), TOPICS.get, 0)
    g.heartbeat(beat("m2", topics=("a", "b")), TOPICS.get, 0)
    assert g.by_subscribers(["c", "b", "a", "d"]) == [["a", "b"], ["c"], ["d"]]
    g.heartbeat(beat("m2", epoch=-1), TOPICS.get, 1)
    assert g.by_subscribers(["a", "b", "c"]) == [["a", "b"], ["c"]], "m2 is awaited"


def test_restored_members_go_on_with_their_epoch_or_are_evicted() -> None:
    before = group()
    before.heartbeat(beat("m1"), TOPICS.get, 0)
    before.heartbeat(beat("m2"), TOPICS.get, 0)
    after = group()
    after.restore(before.epoch, before.members.values(), 100_000, grace_ms=10_000)
    answer = after.heartbeat(beat("m1", epoch=1, connection=5), TOPICS.get, 101_000)
    assert not answer.members_changed
    assert after.evict_due(109_999) == []
    assert [member.member_id for member in after.evict_due(110_000)] == ["m2"]


def test_a_member_of_a_crowd_gets_its_partitions_with_its_next_heartbeat() -> None:
    """As from Kafka (KIP-1263): a client that leaves at once has got no partitions meanwhile."""
    g = group(assignment_interval_ms=1_000)
    assert g.heartbeat(beat("m1"), TOPICS.get, 0).assignment == {b"o" * 16: (0, 1)}
    joined = g.heartbeat(beat("m2"), TOPICS.get, 999)
    assert (joined.member_epoch, joined.assignment) == (2, {})
    answer = g.heartbeat(beat("m2", epoch=2), TOPICS.get, 1_500)
    assert (answer.member_epoch, answer.assignment) == (3, {b"o" * 16: (0, 1)})
    # The answer was lost: the member comes with the epoch before, and gets the assignment again.
    again = g.heartbeat(beat("m2", epoch=2), TOPICS.get, 1_600)
    assert (again.member_epoch, again.assignment) == (3, answer.assignment)


def test_no_key_goes_to_a_member_of_a_crowd_before_it_has_its_partitions() -> None:
    g = group(assignment_interval_ms=1_000)
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    g.heartbeat(beat("m2"), TOPICS.get, 0)
    assert [member.member_id for member in g.subscribers("orders")] == ["m1"]
    assert g.heartbeat(beat("m2", epoch=2), TOPICS.get, 1).members_changed
    assert [member.member_id for member in g.subscribers("orders")] == ["m1", "m2"]
    assert not g.heartbeat(beat("m2", epoch=3), TOPICS.get, 2).members_changed


@pytest.mark.parametrize(
    ("interval_ms", "first", "joins_ms"),
    [
        pytest.param(1_000, "stays", 1_000, id="long after the other"),
        pytest.param(1_000, "leaves", 1, id="the other has left"),
        pytest.param(0, "stays", 0, id="batching is off"),
    ],
)
def test_without_a_crowd_a_join_gets_every_partition(
    interval_ms: int, first: str, joins_ms: int
) -> None:
    g = group(assignment_interval_ms=interval_ms)
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    if first == "leaves":
        g.heartbeat(beat("m1", epoch=-1), TOPICS.get, 0)
    assert g.heartbeat(beat("m2"), TOPICS.get, joins_ms).assignment == {b"o" * 16: (0, 1)}


def test_a_member_of_a_crowd_that_joins_again_has_its_partitions() -> None:
    """The client did not see the first answer."""
    g = group(assignment_interval_ms=1_000)
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    g.heartbeat(beat("m2"), TOPICS.get, 0)
    again = g.heartbeat(beat("m2"), TOPICS.get, 1)
    assert again.assignment == {b"o" * 16: (0, 1)}
    assert again.members_changed
    assert [member.member_id for member in g.subscribers("orders")] == ["m1", "m2"]


def test_topics_that_nobody_knew_at_the_join_are_not_waited_for_twice() -> None:
    g = group(assignment_interval_ms=1_000)
    g.heartbeat(beat("m1"), TOPICS.get, 0)
    assert g.heartbeat(beat("m2"), lambda _name: None, 0).assignment == {}
    assert [member.member_id for member in g.subscribers("orders")] == ["m1", "m2"]
    assert g.heartbeat(beat("m2", epoch=2), TOPICS.get, 1).assignment == {b"o" * 16: (0, 1)}


def test_members_that_start_together_are_answered_together() -> None:
    """Each asks again when the start is over, with its new epoch."""
    g = group(assignment_interval_ms=1_000, start_ms=500)
    first = g.heartbeat(beat("m1"), TOPICS.get, 10_000)
    second = g.heartbeat(beat("m2"), TOPICS.get, 10_200)
    assert (first.assignment, first.wait_ms) == ({}, 500)
    assert (second.assignment, second.wait_ms) == ({}, 300)
    assert g.subscribers("orders") == [], "no key goes to anybody yet"
    for name, answer in (("m1", first), ("m2", second)):
        again = g.heartbeat(beat(name, answer.member_epoch), TOPICS.get, 10_500)
        assert (again.assignment, again.wait_ms) == ({b"o" * 16: (0, 1)}, 0)
        assert again.members_changed
    assert [member.member_id for member in g.subscribers("orders")] == ["m1", "m2"]


def test_who_joins_after_the_start_is_of_a_crowd() -> None:
    g = group(assignment_interval_ms=1_000, start_ms=500)
    g.heartbeat(beat("m1"), TOPICS.get, 10_000)
    late = g.heartbeat(beat("m2"), TOPICS.get, 10_500)
    assert (late.assignment, late.wait_ms) == ({}, 0)
    alone = g.heartbeat(beat("m3"), TOPICS.get, 11_500)
    assert (alone.assignment, alone.wait_ms) == ({b"o" * 16: (0, 1)}, 0)


def test_many_members_that_start_together_are_a_crowd() -> None:
    g = group(assignment_interval_ms=1_000, start_ms=500)
    waits = [
        g.heartbeat(beat(f"m{at}"), TOPICS.get, 10_000).wait_ms
        for at in range(START_MEMBERS_MAX + 2)
    ]
    assert waits == [500] * START_MEMBERS_MAX + [0, 0]


@pytest.mark.parametrize(("interval_ms", "start_ms"), [(0, 500), (1_000, 0)])
def test_a_group_without_a_start_answers_at_once(interval_ms: int, start_ms: int) -> None:
    g = group(assignment_interval_ms=interval_ms, start_ms=start_ms)
    answer = g.heartbeat(beat("m1"), TOPICS.get, 10_000)
    assert (answer.assignment, answer.wait_ms) == ({b"o" * 16: (0, 1)}, 0)


def test_an_empty_group_starts_again() -> None:
    g = group(assignment_interval_ms=1_000, start_ms=500)
    epoch = g.heartbeat(beat("m1"), TOPICS.get, 10_000).member_epoch
    assert g.heartbeat(beat("m1", epoch), TOPICS.get, 10_500).assignment
    g.heartbeat(beat("m1", -1), TOPICS.get, 20_000)
    assert g.heartbeat(beat("m2"), TOPICS.get, 20_100).wait_ms == 500


def test_topics_that_are_not_there_are_not_waited_for() -> None:
    g = group(assignment_interval_ms=1_000, start_ms=500)
    assert g.heartbeat(beat("m1", topics=("missing",)), TOPICS.get, 10_000).wait_ms == 0


def test_more_have_left_than_are_known_one_by_one() -> None:
    """The keys of the earliest ones are not known any more, so any key is awaited."""
    crowd = group()
    for at in range(2 * DEPARTED_MAX):
        crowd.heartbeat(beat("m"), TOPICS.get, at)
        crowd.members["m"].client_id = f"client-{at}"
        crowd.heartbeat(beat("m", -1), TOPICS.get, at)
        assert len(crowd.departed) <= DEPARTED_MAX
    assert list(crowd.departed.values()) == sorted(crowd.departed.values())
    assert None in crowd.awaited("orders")
    end_ms = 2 * DEPARTED_MAX - 1
    assert EVERYBODY not in crowd.overdue(end_ms + UNSEEN_MS_MAX, 60_000), "it is of those who left"
    assert EVERYBODY in crowd.overdue(end_ms + 60_000, 60_000)


def test_topics_of_many_who_left_are_not_kept() -> None:
    """A name is up to 249 bytes, and a member may have a thousand."""
    crowd = group()
    for at in range(50):
        topics = tuple(f"topic-{at}-{number}" for number in range(1_000))
        crowd.heartbeat(beat("m", topics=topics), TOPICS.get, at)
        crowd.heartbeat(beat("m", -1), TOPICS.get, at)
        assert sum(len(names) for _, names in crowd.departed) <= GROUP_TOPIC_NAMES_MAX
    assert EVERYBODY in crowd.departed
    assert None in crowd.awaited("topic-0-0"), "it is not known any more who had it"
    assert "client" in crowd.awaited("topic-49-0")


def test_topics_of_a_group_have_a_bound() -> None:
    some = group(members_max=100)
    for at in range(20):
        topics = tuple(f"topic-{at}-{number}" for number in range(1_000))
        some.heartbeat(beat(f"m{at}", topics=topics), TOPICS.get, 0)
    epoch, names = some.epoch, some.topics()
    assert len(names) == GROUP_TOPIC_NAMES_MAX
    with pytest.raises(GroupFull):
        some.heartbeat(beat("m"), TOPICS.get, 0)
    with pytest.raises(GroupFull):
        some.heartbeat(beat("m0", 1, (*some.members["m0"].topics, "orders")), TOPICS.get, 0)
    assert (some.epoch, some.topics(), len(some.members)) == (epoch, names, 20)
    again = some.members["m7"].topics
    some.heartbeat(beat("m", topics=again), TOPICS.get, 0)
    assert some.members["m"].topics is again, "who has the topics of another may come"
    some.heartbeat(beat("m0", 1, ("orders",)), TOPICS.get, 0)
    some.heartbeat(beat("n"), TOPICS.get, 0)


def test_everybody_is_awaited_while_somebody_reads() -> None:
    crowd = group()
    crowd.departed[EVERYBODY] = 0
    crowd.await_departed_anew(10)
    assert crowd.departed == {EVERYBODY: 10}
    crowd.heartbeat(beat("m"), TOPICS.get, 20)
    crowd.await_departed_anew(30)
    assert crowd.departed[EVERYBODY] == 20


def test_nobody_else_may_read_what_some_member_reads_or_has_read() -> None:
    some = group()
    some.heartbeat(beat("m1"), TOPICS.get, 0)
    assert some.departed == {(None, ("orders",)): 0}
    assert some.overdue(UNSEEN_MS_MAX - 1, 60_000) == []
    assert some.overdue(UNSEEN_MS_MAX, 60_000) == [(None, ("orders",))]
    assert some.overdue(1_000, 1_000) == [(None, ("orders",))]
    some.departed.clear()
    some.heartbeat(beat("m2"), TOPICS.get, 1)
    assert some.departed == {}
    for name in ("m1", "m2"):
        some.heartbeat(beat(name, -1), TOPICS.get, 2)
    some.heartbeat(beat("m3"), TOPICS.get, 3)
    assert some.departed == {("client", ("orders",)): 3}
