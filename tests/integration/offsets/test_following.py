"""Offsets follow a stock group from A to B, on real Kafkas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from keyway.clusters.config import load
from keyway.clusters.core.internal import OFFSETS_TOPIC
from offsets.commits import CommitSource
from offsets.core.plan import Mode, Refusal
from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import end_transaction
from tests.rig.offset_clusters import (
    PlainLink,
    Services,
    commit,
    committed,
    produce_at,
    read_group,
    values,
    write_config,
)
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration
Topic = Callable[..., str]
Copied = Callable[[int], str]
Names = Callable[[str], str]


def source_of(services: Services, name: str) -> CommitSource:
    return services.by_name[name].distributor.source


def test_a_group_goes_on_where_it_was(
    pair: Addresses, both: Topic, fresh_name: Names, tmp_path: Path
) -> None:
    """B has records of its own between the copies, so no offset is the same."""
    topic, group = both(partitions=2), fresh_name("group")
    link = PlainLink(("A", pair["A"]), pair["B"])
    for partition in (0, 1):
        produce_at(pair["B"], topic, values(0, 7, name="b"), partition=partition)
        produce_at(pair["A"], topic, values(0, 50, name=f"a{partition}-"), partition=partition)
        link.copy(topic, partition)
    back = PlainLink(("B", pair["B"]), pair["A"])
    for partition in (0, 1):
        assert back.copy(topic, partition) == 7, "its own records, and no copy"
    done = {value for _, _, value in read_group(pair["A"], group, [topic], 60)}
    path = write_config(tmp_path, pair)
    with Services.of(path) as services:
        services.until(
            lambda: all(
                (row := services.row("B", group, topic, at)) and row.changes for at in (0, 1)
            ),
            what="both partitions committed on B",
        )
        expected = sum(services.row("B", group, topic, at).replay for at in (0, 1))
        assert {services.row("B", group, topic, at).mode for at in (0, 1)} == {Mode.EXACT}
    left = 2 * 57 - 60
    again = read_group(pair["B"], group, [topic], left + expected)
    assert done | {value for _, _, value in again} == {
        *(f"a{partition}-{at}".encode() for partition in (0, 1) for at in range(50)),
        *(f"b{at}".encode() for at in range(7)),
    }
    repeated = [value for _, _, value in again if value in done]
    assert len(repeated) <= expected + 14, "b0 to b6 have the same values in both partitions"
    link.close()
    back.close()


@pytest.mark.deep
def test_a_commit_in_a_transaction_counts_when_it_is_committed(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group = copied(10), fresh_name("group")
    consumer = Consumer({"bootstrap.servers": pair["A"], "group.id": group})
    metadata = consumer.consumer_group_metadata()
    producer = Producer({"bootstrap.servers": pair["A"], "transactional.id": fresh_name("tx")})
    producer.init_transactions(30)
    with Services.of(write_config(tmp_path, pair)) as services:
        for offset, kept in ((4, True), (9, False)):
            producer.begin_transaction()
            producer.produce(topic, b"in a transaction", partition=0)
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, 30)
            end_transaction(producer, pair["A"], topic, commit=kept)
        services.until_applied("B", group, topic)
        services.rounds(5)
        assert services.row("B", group, topic).source_offset == 4, "the aborted one is no commit"
    assert committed(load(tmp_path / "clusters.yaml"), "B", group)[topic, 0].offset == 4
    consumer.close()


@pytest.mark.deep
@pytest.mark.parametrize("metadata", ["", "AAEAAAGX+kafka/streams==", "x" * 4_095])
def test_metadata_is_the_same_byte_for_byte(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path, metadata: str
) -> None:
    topic, group = copied(10), fresh_name("streams")
    commit(pair["A"], group, topic, 6, metadata=metadata)
    with Services.of(write_config(tmp_path, pair)) as services:
        services.until_applied("B", group, topic)
        services.until(
            lambda: source_of(services, "B").latest((group, topic, 0)) is not None, what="read back"
        )
        here, there = (source_of(services, cluster).latest((group, topic, 0)) for cluster in "AB")
    assert here is not None
    assert there is not None
    # confluent-kafka ends metadata with a zero byte: it goes along.
    assert (there.offset, there.metadata) == (6, here.metadata)
    assert here.metadata.rstrip("\0") == metadata


@pytest.mark.deep
def test_flags_in_metadata_are_an_option(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group = copied(10), fresh_name("group")
    commit(pair["A"], group, topic, 6, metadata="mine")
    with Services.of(write_config(tmp_path, pair, flags_in_metadata=True)) as services:
        services.until_applied("B", group, topic)
    there = committed(load(tmp_path / "clusters.yaml"), "B", group)[topic, 0]
    assert there.metadata == "keyway-flags=00000001;mine\0", "the last byte is confluent-kafka's"


def test_metadata_that_the_target_does_not_take_is_refused_by_name(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """With the flags before it, 4,090 characters are too many."""
    topic, group, other = copied(10), fresh_name("group"), fresh_name("other")
    commit(pair["A"], group, topic, 6, metadata="x" * 4_090)
    commit(pair["A"], other, topic, 5)
    with Services.of(write_config(tmp_path, pair, flags_in_metadata=True)) as services:
        services.until(
            lambda: all(services.decided("B", name, topic) for name in (group, other)),
            what="both decided",
        )
        assert services.row("B", group, topic).refusals == (Refusal.METADATA_TOO_LARGE,)
        assert services.row("B", other, topic).refusals == ()


@pytest.mark.deep
def test_a_group_at_work_is_left_alone_and_taken_up_when_it_is_empty(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group = copied(20), fresh_name("group")
    member = Consumer(
        {
            "bootstrap.servers": pair["B"],
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe([topic])
    first = member.poll(30)
    assert first is not None
    assert first.error() is None
    commit(pair["A"], group, topic, 12)
    with Services.of(write_config(tmp_path, pair)) as services:
        services.until(
            lambda: (
                (row := services.row("B", group, topic)) is not None
                and row.refusals == (Refusal.GROUP_ACTIVE,)
            ),
            what="refused, as the group is active",
        )
        services.rounds(3)
        config = services.config
        assert committed(config, "B", group) == {}
        member.close()
        services.until_applied("B", group, topic)
    assert committed(config, "B", group)[topic, 0].offset == 12


@pytest.mark.deep
def test_nothing_goes_round(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """C1 -> C2 -> C1 settles: then no service writes anything in 20 rounds."""
    topic, group = copied(20), fresh_name("group")
    commit(pair["A"], group, topic, 12)
    with Services.of(write_config(tmp_path, pair)) as services:
        services.until_applied("B", group, topic)
        state_topics = [service.state_topic for service in services.by_name.values()]

        def quiet() -> bool:
            ends = [
                state_topic.client.compacted(OFFSETS_TOPIC).end() for state_topic in state_topics
            ]
            services.rounds(20)
            return [
                state_topic.client.compacted(OFFSETS_TOPIC).end() for state_topic in state_topics
            ] == ends

        wait_until(quiet, what="no service writes anything", deadline_s=60)
        assert (group, topic, 0) not in {
            place for (place, source) in state_topics[1].state.entries if source == "B"
        }, "B has nothing of its own to say"


@pytest.mark.deep
def test_back_again_with_what_was_done_there(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """A, then B, then A: the group goes on at A behind all that it did on B, and never goes back
    by the old entry of A.
    """
    topic, group = copied(20), fresh_name("group")
    back = PlainLink(("B", pair["B"]), pair["A"])
    assert len(read_group(pair["A"], group, [topic], 12)) == 12
    config = load(write_config(tmp_path, pair))
    with Services(config) as services:
        services.until_applied("B", group, topic)
        produce_at(pair["B"], topic, values(0, 5, name="b"))
        there_read = read_group(pair["B"], group, [topic], 13)
        assert [value for _, _, value in there_read][:8] == [b"a%d" % at for at in range(12, 20)]
        assert back.copy(topic) == 5
        services.until(
            lambda: committed(config, "A", group)[topic, 0].offset == 25, what="followed to A"
        )
        services.rounds(10)
        assert committed(config, "B", group)[topic, 0].offset == 25
        produce_at(pair["A"], topic, values(20, 3))
        assert [record[2] for record in read_group(pair["A"], group, [topic], 3)] == [
            b"a20",
            b"a21",
            b"a22",
        ]
    back.close()


@pytest.mark.deep
def test_the_admin_client_is_enough(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """Where nobody may read __consumer_offsets."""
    topic, group = copied(20), fresh_name("group")
    commit(pair["A"], group, topic, 12, metadata="mine")
    with Services.of(write_config(tmp_path, pair, commits="list")) as services:
        services.until_applied("B", group, topic)
        commit(pair["A"], group, topic, 15)
        services.until(lambda: services.row("B", group, topic).new == 15, what="the next one, too")
        services.rounds(3)


@pytest.mark.deep
def test_a_reset_on_the_source_follows_only_if_told(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group = copied(20), fresh_name("group")
    commit(pair["A"], group, topic, 12)
    path = write_config(tmp_path, pair)
    with Services.of(path) as services:
        services.until_applied("B", group, topic)
        commit(pair["A"], group, topic, 3)
        services.until(
            lambda: services.row("B", group, topic).refusals == (Refusal.TARGET_AHEAD,),
            what="refused",
        )
        assert committed(services.config, "B", group)[topic, 0].offset == 12
    with Services.of(write_config(tmp_path, pair, rewind=True)) as services:
        services.until(
            lambda: committed(services.config, "B", group)[topic, 0].offset == 3, what="rewound"
        )


@pytest.mark.deep
def test_a_reset_on_the_target_is_the_operators(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    """The old entry does not undo it; a later commit on the source does."""
    topic, group = copied(20), fresh_name("group")
    commit(pair["A"], group, topic, 12)
    with Services.of(write_config(tmp_path, pair)) as services:
        services.until_applied("B", group, topic)
        commit(pair["B"], group, topic, 2)
        services.until(
            lambda: Refusal.OVERTAKEN in services.row("B", group, topic).refusals, what="overtaken"
        )
        services.rounds(5)
        assert committed(services.config, "B", group)[topic, 0].offset == 2
        commit(pair["A"], group, topic, 15)
        services.until(
            lambda: committed(services.config, "B", group)[topic, 0].offset == 15, what="followed"
        )


@pytest.mark.deep
def test_a_restart_does_not_read_the_logs_again(
    pair: Addresses, copied: Copied, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group = copied(200), fresh_name("group")
    commit(pair["A"], group, topic, 120)
    path = write_config(tmp_path, pair)
    with Services.of(path) as services:
        services.until_applied("B", group, topic)
    commit(pair["A"], group, topic, 150)
    produce_at(pair["A"], topic, values(200, 10))
    with Services.of(path) as services:
        services.until(
            lambda: (row := services.row("B", group, topic)) is not None and row.new == 150,
            what="followed on",
        )
        read = services.by_name["A"].partitions._followed[topic, 0]
        assert (read.recent_from, read.index.end, len(read.recent.offsets)) == (200, 210, 10)
