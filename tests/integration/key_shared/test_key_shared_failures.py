"""Members that die, leave, refuse or stall: redelivery in key order, poison policies, fenced
acknowledgements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from confluent_kafka import Message

from gateway.embedded.kafka import KafkaCluster
from gateway.members.limits import TICK_MS
from tests.rig.clients.order import assert_first_deliveries_in_order, assert_never_backwards
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import (
    ShareHost,
    ShareMember,
    accepted_places,
    consume_all,
    deliveries_of,
)
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import DEAD_LETTERS
from tests.rig.kafka import Sent, produce, read_partition
from tests.rig.patience import wait_until
from tests.rig.topic_contents import headers_of, read_messages

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Joined:
    """The one member of a new group; it acknowledges explicitly."""

    topic: str  # of one partition
    group: str
    member: ShareMember

    def refuse(
        self, verdict: str, batch: list[Delivery], refused: Callable[[Delivery], bool]
    ) -> list[Delivery]:
        """Commits `verdict` for the refused ones of `batch` and ACCEPT for the rest, which it
        returns.
        """
        rest = [delivery for delivery in batch if not refused(delivery)]
        assert len(rest) < len(batch), "all that are to be refused were delivered"
        self.member.acknowledge(verdict, [delivery for delivery in batch if refused(delivery)])
        self.member.acknowledge("ACCEPT", rest)
        self.member.commit()
        return rest


Join = Callable[..., Joined]


@pytest.fixture
def join(front: str, topic: Topic, share_group: Group, share_host: ShareHost) -> Iterator[Join]:
    """join(records, policy="group"): with the records in its topic before it comes."""
    joined = []

    def make(records: Iterable[Sent], policy: str = "group") -> Joined:
        name, group = topic(partitions=1), share_group(policy)
        produce(front, name, records)
        member = share_host.member(front, group, [name], explicit=True)
        joined.append(Joined(name, group, member))
        return joined[-1]

    yield make
    for group in joined:
        group.member.close()


def rounds(keys: int, each: int) -> list[Sent]:
    """`each` rounds over the keys, so that offset = round * keys + key."""
    return [(b"key-%d" % key, b"%d" % at) for at in range(each) for key in range(keys)]


def accept_rest(member: ShareMember, count: int) -> list[Delivery]:
    """Polls and accepts until `count` records were accepted."""
    got: list[Delivery] = []
    while len(got) < count:
        batch = member.poll_some()
        assert batch, f"stuck after {len(got)} of {count}"
        member.settle("ACCEPT", batch)
        got += batch
    return got


def offsets(deliveries: Iterable[Delivery]) -> list[int]:
    return [delivery.offset for delivery in deliveries]


@pytest.mark.parametrize(
    ("victim", "heir"),
    [pytest.param("librdkafka", "java", marks=pytest.mark.deep), ("java", "librdkafka")],
)
def test_killed_member_loses_nothing(
    front: str,
    topic: Topic,
    share_group: Group,
    new_host: Callable[[str], ShareHost],
    request: pytest.FixtureRequest,
    victim: str,
    heir: str,
) -> None:
    """Scenario 14: SIGKILL with 100 keys in hand; another member gets them, in key order, delivery
    count + 1: for its connection is gone, its locks and its session last much longer.
    """
    name, group = topic(partitions=1), share_group("patient")
    produce(front, name, rounds(100, 5))
    host = new_host(victim)
    dying = host.member(front, group, [name], explicit=True)
    held = dying.poll_some()
    assert held
    host.kill()
    survivor_host: ShareHost = request.getfixturevalue(f"{heir}_host")
    survivor = survivor_host.member(front, group, [name])
    consume_all([survivor], {(name, 0, at) for at in range(500)})
    assert_never_backwards(survivor.deliveries)
    counts = {delivery.offset: delivery.delivery_count for delivery in survivor.deliveries}
    assert {offset for offset, count in counts.items() if count == 2} == set(offsets(held))
    assert set(counts.values()) <= {1, 2}
    survivor.close()


def test_clean_leave_gives_back_at_once(
    front: str, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenario 15: close() with unacknowledged records; they come to the other member without a
    timeout: those of its locks and of its session are much longer than this test waits.
    """
    name, group = topic(partitions=1), share_group("patient")
    produce(front, name, rounds(20, 2))
    leaving = share_host.member(front, group, [name], explicit=True)
    held = leaving.poll_some()
    staying = share_host.member(front, group, [name])
    staying.poll()  # joined, and waits
    leaving.acknowledge("RELEASE", held[1:])
    leaving.close()
    consume_all([staying], {(name, 0, at) for at in range(40)})
    assert_first_deliveries_in_order(deliveries_of([leaving, staying]))
    assert held[0].offset in offsets(staying.deliveries), "also those never acknowledged"
    staying.close()


@pytest.mark.usefixtures("gateway")
def test_release_keeps_the_order_of_its_key(join: Join) -> None:
    """Scenario 16: x: 0..4, 0 released once with 4 s back-off: then 0,1,2,3,4; key y flows
    meanwhile.
    """
    group = join([(key, b"%d" % at) for at in range(5) for key in (b"x", b"y")], "nack")
    batch = group.member.poll_some()
    before_ns = time.monotonic_ns()
    ys_accepted = group.refuse("RELEASE", batch, lambda record: record.key == b"x")
    accept_rest(group.member, 10 - len(ys_accepted))
    xs = [delivery for delivery in group.member.deliveries if delivery.key == b"x"]
    assert [delivery.value for delivery in xs] == [b"0", b"0", b"1", b"2", b"3", b"4"]
    assert [delivery.delivery_count for delivery in xs] == [1, 2, 1, 1, 1, 1]
    # The clock of the gateway starts when the release arrives, a little behind this test's.
    assert xs[1].at_ns - before_ns > 3_990_000_000, "the back-off of 4 s"
    ys = [delivery for delivery in group.member.deliveries if delivery.key == b"y"]
    assert [delivery.value for delivery in ys] == [b"0", b"1", b"2", b"3", b"4"]
    assert ys[1].at_ns < xs[1].at_ns, "y did not wait for x"


def test_release_keeps_its_order_when_the_member_leaves(
    gateway: GatewayProcess, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenario 16: the same when the member that released goes during the back-off."""
    name, group = topic(partitions=1), share_group("nack")
    produce(gateway.bootstrap, name, [(b"x", b"%d" % at) for at in range(5)])
    refusing = share_host.member(gateway.bootstrap, group, [name], explicit=True)
    refusing.settle("RELEASE", refusing.poll_some())
    refusing.close()
    heir = share_host.member(gateway.bootstrap, group, [name], explicit=True)
    accept_rest(heir, 5)
    assert offsets(heir.deliveries) == [0, 1, 2, 3, 4]
    assert heir.deliveries[0].delivery_count == 2
    heir.close()


@pytest.mark.usefixtures("gateway")
def test_reject_drops(kafka: KafkaCluster, join: Join) -> None:
    group = join(rounds(4, 3), "drop")
    taken = group.refuse("REJECT", group.member.poll_some(), lambda record: record.offset == 0)
    accept_rest(group.member, 11 - len(taken))
    delivered = offsets(group.member.deliveries)
    assert delivered.count(0) == 1, "a rejected record never comes back"
    assert sorted(delivered) == list(range(12)), "the rest of its key does"
    assert_never_backwards(group.member.deliveries)
    wait_for_committed(kafka, group.group, group.topic, 0, 12)


@pytest.mark.usefixtures("gateway")
def test_attempts_are_limited(kafka: KafkaCluster, join: Join) -> None:
    """deliveries_max 3: three deliveries, numbered 1, 2, 3; then the policy (drop) and the key goes
    on.
    """
    group = join([(b"k", b"poison"), (b"k", b"after")], "drop")
    for attempt in (1, 2, 3):
        batch = group.member.poll_some()
        assert [(one.value, one.delivery_count) for one in batch] == [(b"poison", attempt)]
        group.member.settle("RELEASE", batch)
    after = group.member.poll_some()
    assert [(one.value, one.delivery_count) for one in after] == [(b"after", 1)]
    group.member.settle("ACCEPT", after)
    wait_for_committed(kafka, group.group, group.topic, 0, 2)


@pytest.mark.usefixtures("gateway")
def test_reject_dead_letters(kafka: KafkaCluster, join: Join) -> None:
    """Scenario 19: the record stands in the DLQ with its origin when the next one of its
    key comes.
    """
    group = join([(b"k", b"poison"), (b"k", b"after"), (b"other", b"fine")], "dlq")
    taken = group.refuse(
        "REJECT", group.member.poll_some(), lambda record: record.value == b"poison"
    )
    rest = accept_rest(group.member, 2 - len(taken))
    assert rest[-1].value == b"after"
    letters = dead_letters_of(kafka, group.topic)
    assert [(letter.key(), letter.value()) for letter in letters] == [(b"k", b"poison")]
    said = [value for _, value in headers_of(letters[0])]
    for word in (group.topic, group.group, "0", "rejected"):  # partition or offset, reason
        assert word.encode() in said, f"{word} in {headers_of(letters[0])}"
    wait_for_committed(kafka, group.group, group.topic, 0, 3)


def dead_letters_of(kafka: KafkaCluster, topic: str) -> list[Message]:
    """Dead letters of `topic`, by their header, that are in the dead-letter topic now."""
    return [
        letter
        for letter in read_messages(kafka, DEAD_LETTERS)
        if any(value == topic.encode() for _, value in headers_of(letter))
    ]


@pytest.mark.usefixtures("gateway")
def test_reject_blocks_the_key_alone(kafka: KafkaCluster, join: Join) -> None:
    """Scenario 20: the key is held, other keys flow, the committed offset does not pass the blocked
    record.
    """
    group = join(rounds(3, 4), "block")
    taken = group.refuse("REJECT", group.member.poll_count(3), lambda record: record.offset == 1)
    accept_rest(group.member, 8 - len(taken))
    assert group.member.poll_empty(2.0) == [], "key-1 is held"
    assert [one.offset for one in group.member.deliveries if one.key == b"key-1"] == [1]
    assert_never_backwards(group.member.deliveries)
    wait_for_committed(kafka, group.group, group.topic, 0, 1)


@pytest.mark.usefixtures("gateway")
def test_a_group_without_policies_rejects_and_goes_on_with_the_key(
    kafka: KafkaCluster, join: Join
) -> None:
    """As Kafka archives a rejected record: a stock application waits for no operator."""
    group = join(rounds(2, 5))
    done = 0
    while done < 10:
        batch = group.member.poll_some()
        assert batch, f"stuck after {done} of 10"
        group.member.settle("REJECT", batch)
        done += len(batch)
    assert sorted(offsets(group.member.deliveries)) == list(range(10)), "each of them once"
    wait_for_committed(kafka, group.group, group.topic, 0, 10)


@pytest.mark.usefixtures("gateway")
def test_rejected_and_exhausted_records_end_differently(kafka: KafkaCluster, join: Join) -> None:
    """rejected: dead_letter, exhausted: block, two deliveries: the first record of one key is
    rejected, the first of another released twice.
    """
    sent = [(b"no", b"poison"), (b"spent", b"first"), (b"no", b"after"), (b"spent", b"behind")]
    group = join(sent, "split")
    verdicts = {b"poison": "REJECT", b"first": "RELEASE", b"after": "ACCEPT"}
    while len(group.member.deliveries) < 4:
        batch = group.member.poll_some()
        assert batch, f"stuck after {group.member.deliveries}"
        for one in batch:
            assert one.value is not None
            group.member.settle(verdicts[one.value], [one])
    assert group.member.poll_empty(1.5) == [], "the exhausted record is parked, its key waits"
    delivered = [one.value for one in group.member.deliveries]
    assert sorted(value or b"" for value in delivered) == [b"after", b"first", b"first", b"poison"]
    letters = dead_letters_of(kafka, group.topic)
    assert [(letter.key(), letter.value()) for letter in letters] == [(b"no", b"poison")]
    assert ("keyway.dlq.reason", b"rejected") in headers_of(letters[0])
    wait_for_committed(kafka, group.group, group.topic, 0, 1)


@pytest.mark.deep
def test_lock_timeout_redelivers_and_refuses_the_late_acknowledgement(
    gateway: GatewayProcess, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenario 23: the lock of 1.5 s expires, others get the records, the late ack changes
    nothing.
    """
    name, group = topic(partitions=1), share_group("lock")
    produce(gateway.bootstrap, name, rounds(20, 2))
    stalling = share_host.member(gateway.bootstrap, group, [name], explicit=True)
    held = stalling.poll_some()
    assert offsets(held)
    other = share_host.member(gateway.bootstrap, group, [name], explicit=True)
    # The ring gives the newcomer some of 20 keys; the stalling one keeps its share, and its claim.
    batch = other.poll_some()
    while batch and not set(offsets(batch)) & set(offsets(held)):
        accept_in_time(other, batch)
        batch = other.poll_some()
    again = [delivery for delivery in batch if delivery.offset in offsets(held)]
    assert {delivery.delivery_count for delivery in again} == {2}
    stalling.acknowledge("ACCEPT", held)
    assert stalling.commit() == ["INVALID_RECORD_STATE"]
    assert not [acked for acked in stalling.acked if acked.error is None]
    stalling.close()
    accept_in_time(other, batch)

    def all_accepted() -> bool:
        accept_in_time(other, other.poll())
        return len(accepted_places([other])) == 40

    wait_until(all_accepted, what="all accepted", deadline_s=60)
    assert {delivery.offset for delivery in other.deliveries} == set(range(40))
    assert_never_backwards(other.deliveries)
    other.close()


def accept_in_time(member: ShareMember, batch: list[Delivery]) -> None:
    """Accepts; a record not accepted before its lock was over comes again."""
    member.acknowledge("ACCEPT", batch)
    assert set(member.commit()) <= {"OK", "INVALID_RECORD_STATE"}


def test_explicit_mode_without_acknowledgement_of_all(join: Join) -> None:
    """The client's own rule reaches the application through the gateway: every record must be
    acknowledged.
    """
    group = join(rounds(5, 1))
    held = group.member.poll_some()
    with pytest.raises(AssertionError, match=r"(?i)acknowledge|state"):
        group.member.poll()
    group.member.settle("ACCEPT", held)


@pytest.mark.deep
def test_no_wake_up_is_lost(join: Join) -> None:
    """Scenario 24: with nothing produced any more, the next record of a key comes right after the
    acknowledgement.
    """
    group = join(rounds(1, 40))
    got = accept_rest(group.member, 40)
    assert offsets(got) == list(range(40))
    # 39 turns of acknowledge and fetch. Woken by the watchdog alone each would take its tick, and
    # the first less; a busy machine makes some of them slow, not all.
    turns_ms = sorted((after.at_ns - before.at_ns) / 1e6 for before, after in pairwise(got))
    assert turns_ms[4] < 0.8 * TICK_MS, turns_ms


def test_pending_records_reach_the_heir_without_new_traffic(
    front: str, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Scenario 7: a member leaves a backlog behind; the idle one gets all of it though nothing is
    produced.
    """
    name, group = topic(partitions=1), share_group()
    produce(front, name, rounds(200, 5))
    leaving = librdkafka_host.member(front, group, [name], explicit=True)
    held = leaving.poll_some()
    assert held
    idle = librdkafka_host.member(front, group, [name])
    idle.begin_consume()
    leaving.close()
    wait_until(
        lambda: len({delivery.offset for delivery in idle.deliveries}) == 1_000,
        what="the whole backlog",
        deadline_s=60,
    )
    idle.end_consume()
    assert_first_deliveries_in_order(deliveries_of([leaving, idle]))
    idle.close()


def test_dead_letter_topic_holds_only_what_failed(
    kafka: KafkaCluster, gateway: GatewayProcess
) -> None:
    """No ordinary record of the tests above ended there."""
    assert gateway.running
    values = {value for _, _, value in read_partition(kafka.bootstrap_servers, DEAD_LETTERS, 0)}
    assert values <= {b"poison"}
