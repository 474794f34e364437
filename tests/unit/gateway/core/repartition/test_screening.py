"""Which requests stop here, and what of their partitions a client sees."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.repartition.consumers import ANYBODY, Client, ConsumerEnds
from gateway.core.repartition.hiding import ShownTopic
from gateway.core.repartition.limits import CLIENT_GROUPS_MAX
from gateway.core.repartition.named_partitions import NAMING_PARTITIONS, named_in
from gateway.core.repartition.screening import HIDDEN, Screening
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_request
from gateway.core.wire.frames import parse_request_header
from tests.rig.wire_frames import request

ME: Client = ("10.0.0.1", "app")
# What upstream lets it read.
MAY_READ = {("group", "a"), ("group", "b"), ("topic", "grown"), ("topic", "new")}
TOPIC, TOPIC_ID = "orders", b"o" * 16
SHOWN = {TOPIC: ShownTopic(TOPIC_ID, 2), "grown": ShownTopic(b"g" * 16, 4)}


def hiding() -> Screening:
    screening = Screening()
    screening.look_for(SHOWN, [TOPIC], {}, listens=False)
    return screening


def holding() -> Screening:
    screening = Screening()
    ends = ConsumerEnds(frozenset({"a"}), before=2)
    screening.look_for(SHOWN, [], {"grown": ends}, listens=True)
    return screening


def fetch(topic_id: bytes, partition: int) -> bytes:
    rows = [{"Partition": 0}, {"Partition": partition}]
    return request(ApiKey.FETCH, 17, {"Topics": [{"TopicId": topic_id, "Partitions": rows}]})[4:]


def list_offsets(topic: str, partition: int) -> bytes:
    rows = [{"PartitionIndex": partition}]
    return request(ApiKey.LIST_OFFSETS, 7, {"Topics": [{"Name": topic, "Partitions": rows}]})[4:]


def end_for(screening: Screening, key: int, version: int, payload: bytes) -> list[int | None]:
    body = decode_request(key, version, payload, parse_request_header(payload).body_at)
    return [screening.end_for(ME, key, named) for named in named_in(key, body)]


def test_nothing_is_looked_at_while_nothing_grows() -> None:
    assert Screening().apis == frozenset()


def test_a_hidden_partition_stops_by_name_and_by_id() -> None:
    screening = hiding()
    assert screening.apis == NAMING_PARTITIONS | {ApiKey.OFFSET_FETCH}
    assert screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, fetch(TOPIC_ID, 2))
    assert end_for(screening, ApiKey.FETCH, 17, fetch(TOPIC_ID, 2)) == [None, HIDDEN]
    assert screening.stops(ME, MAY_READ, ApiKey.LIST_OFFSETS, 7, list_offsets(TOPIC, 3))


def offset_fetch(version: int, *topics: dict[str, Any]) -> bytes:
    body: dict[str, Any] = {"GroupId": "a", "Topics": list(topics)}
    if version >= 8:
        body = {"Groups": [{"GroupId": "b", "Topics": None}, body]}
    return request(ApiKey.OFFSET_FETCH, version, body)[4:]


@pytest.mark.parametrize(
    ("version", "topic"), [(7, {"Name": TOPIC}), (9, {"Name": TOPIC}), (10, {"TopicId": TOPIC_ID})]
)
def test_who_asks_for_a_position_in_a_hidden_partition_stops(
    version: int, topic: dict[str, Any]
) -> None:
    for partition, stops in ((1, False), (2, True)):
        payload = offset_fetch(version, {**topic, "PartitionIndexes": [0, partition]})
        assert hiding().stops(ME, MAY_READ, ApiKey.OFFSET_FETCH, version, payload) is stops


@pytest.mark.parametrize(
    ("key", "version", "payload"),
    [
        (ApiKey.FETCH, 17, fetch(TOPIC_ID, 1)),
        (ApiKey.FETCH, 17, fetch(b"g" * 16, 9)),
        (ApiKey.LIST_OFFSETS, 7, list_offsets("orders2", 3)),
        (ApiKey.PRODUCE, 2, TOPIC_ID),
    ],
)
def test_all_else_goes_on(key: int, version: int, payload: bytes) -> None:
    assert not hiding().stops(ME, MAY_READ, key, version, payload)


def test_what_cannot_be_read_stops() -> None:
    """Kafka ignores bytes behind a request: a client reached hidden partitions with them."""
    payload = fetch(TOPIC_ID, 2)
    for unreadable in (payload + b"\0\0", payload[:-3]):
        assert hiding().stops(ME, MAY_READ, ApiKey.FETCH, 17, unreadable)


def test_a_consumer_of_a_group_that_waits_sees_an_end() -> None:
    screening = holding()
    reading = (ApiKey.FETCH, 17, fetch(b"g" * 16, 2))
    assert screening.stops(ME, MAY_READ, *reading)
    assert end_for(screening, *reading) == [None, 0]
    produced = {"TopicData": [{"TopicId": b"g" * 16, "PartitionData": [{"Index": 3}]}]}
    assert not screening.stops(
        ME, MAY_READ, ApiKey.PRODUCE, 13, request(ApiKey.PRODUCE, 13, produced)[4:]
    )
    screening.ends["grown"].passed("a")
    assert screening.stops(ME, MAY_READ, *reading), (
        "whose groups are not known sees what was there a while"
    )
    screening.groups.named(ME, ["a"])
    assert not screening.stops(ME, MAY_READ, *reading)


NAMING_GROUPS: list[tuple[ApiKey, dict[str, Any]]] = [
    (ApiKey.HEARTBEAT, {"GroupId": "b"}),
    (ApiKey.JOIN_GROUP, {"GroupId": "b"}),
    (ApiKey.SYNC_GROUP, {"GroupId": "b"}),
    (ApiKey.OFFSET_COMMIT, {"GroupId": "b"}),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"GroupId": "b"}),
    (ApiKey.OFFSET_FETCH, {"Groups": [{"GroupId": "b", "Topics": None}]}),
]


@pytest.mark.parametrize(("key", "body"), NAMING_GROUPS)
def test_a_group_that_a_client_names_is_its_own(key: ApiKey, body: dict[str, Any]) -> None:
    screening = holding()
    assert key in screening.apis
    version = APIS[key].max_version
    assert not screening.stops(ME, MAY_READ, key, version, request(key, version, body)[4:])
    assert screening.groups.of(ME) == {"b"}
    assert not screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, fetch(b"g" * 16, 2)), (
        "it waits for nothing"
    )


@pytest.mark.parametrize(("key", "body"), NAMING_GROUPS)
def test_a_group_that_upstream_does_not_let_it_read_is_not_its_own(
    key: ApiKey, body: dict[str, Any]
) -> None:
    """Anybody can name it, and then tell where its members read."""
    screening = holding()
    version = APIS[key].max_version
    assert screening.stops(ME, set(), key, version, request(key, version, body)[4:])
    screening.note(ME, set(), key, body)
    assert screening.groups.of(ME) == frozenset()
    assert screening.unproven(ME, set(), key, body) == [("group", "b")]


def test_a_fetch_of_a_topic_that_upstream_does_not_let_it_read_tells_nothing() -> None:
    screening = holding()
    screening.groups.named(ME, ["a"])
    assert screening.stops(ME, {("group", "a")}, ApiKey.FETCH, 17, fetch(b"g" * 16, 1))
    assert screening.ends["grown"].fetched == {}
    screening.ends["grown"].passed("a")
    assert not screening.stops(ME, set(), ApiKey.FETCH, 17, fetch(b"g" * 16, 1)), "it tells nothing"


def test_the_groups_of_so_many_are_not_asked_for() -> None:
    screening = holding()
    body = {"Groups": [{"GroupId": f"{n}", "Topics": None} for n in range(CLIENT_GROUPS_MAX + 1)]}
    payload = request(ApiKey.OFFSET_FETCH, 9, body)[4:]
    assert not screening.stops(ME, set(), ApiKey.OFFSET_FETCH, 9, payload)
    assert screening.groups.of(ME) == frozenset()


def test_groups_are_forgotten_when_nothing_grows() -> None:
    screening = holding()
    screening.groups.named(ME, ["b"])
    screening.look_for(SHOWN, [], {}, listens=False)
    assert screening.groups.of(ME) == frozenset()
    assert screening.apis == frozenset()


def test_where_a_client_fetches_is_noted_for_its_groups() -> None:
    screening = holding()
    payload = fetch(b"g" * 16, 1)
    screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, payload)
    assert screening.ends["grown"].fetched == {}, "its groups are not known"
    screening.groups.named(ME, ["a", "b"])
    screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, payload)
    assert screening.ends["grown"].fetched == {("a", 0): 0, ("a", 1): 0}


def moving() -> Screening:
    """`grown` moves into `new`."""
    screening = Screening()
    ends = ConsumerEnds(frozenset({"a"}), before=2, into="new")
    shown = {"grown": ShownTopic(b"g" * 16, 2), "new": ShownTopic(b"n" * 16, 3)}
    screening.look_for(shown, [], {"grown": ends, "new": ends}, listens=True)
    return screening


def test_of_a_new_topic_a_consumer_sees_an_end_and_all_of_the_old_one() -> None:
    screening = moving()
    ends = screening.ends["new"]
    ends.put("a", 2, 5)
    ends.put(ANYBODY, 2, 5)
    reading = fetch(b"n" * 16, 1)
    assert screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, reading)
    assert end_for(screening, ApiKey.FETCH, 17, reading) == [5, 0]
    assert not screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, fetch(b"g" * 16, 1))
    screening.groups.named(ME, ["a"])
    screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, fetch(b"g" * 16, 1))
    screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, reading)
    assert ends.fetched == {("a", 0): 0, ("a", 1): 0}, "of the old topic"


def test_a_new_topic_whose_id_is_not_known_is_hidden_by_its_name() -> None:
    screening = Screening()
    shown = {"new": ShownTopic(bytes(16), 0)}
    screening.look_for(shown, ["new"], {}, listens=False)
    assert screening.stops(ME, MAY_READ, ApiKey.LIST_OFFSETS, 7, list_offsets("new", 0))
    assert not screening.stops(ME, MAY_READ, ApiKey.FETCH, 17, fetch(b"x" * 16, 0))
