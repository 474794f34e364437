"""Requests and answers that name partitions, one by one: which of them stop here, and their rows
put into the answer to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gateway.core.cluster.acl import DELETE, DESCRIBE, READ, WRITE
from gateway.core.cluster.discovery import NO_TOPIC_ID
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message


@dataclass(frozen=True, slots=True)
class _Layout:
    """The names of an API's fields. `right`: what Kafka asks of a client that uses the API on a
    topic (an AclOperation); `refused`: of a row with an error, what is not its default.
    """

    right: int
    name: str = "Name"
    asked: tuple[str, str, str] = ("Topics", "Partitions", "PartitionIndex")
    answered: tuple[str, str, str] = ("Topics", "Partitions", "PartitionIndex")
    refused: Message = field(default_factory=dict)


_PARTITION: Final = ("Topics", "Partitions", "Partition")
_LAYOUTS: Final[dict[int, _Layout]] = {
    ApiKey.PRODUCE: _Layout(
        WRITE,
        asked=("TopicData", "PartitionData", "Index"),
        answered=("Responses", "PartitionResponses", "Index"),
        refused={"BaseOffset": -1},
    ),
    ApiKey.FETCH: _Layout(
        READ,
        name="Topic",
        asked=_PARTITION,
        answered=("Responses", "Partitions", "PartitionIndex"),
        refused={"HighWatermark": -1, "AbortedTransactions": None, "Records": b""},
    ),
    ApiKey.LIST_OFFSETS: _Layout(DESCRIBE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Layout(
        DESCRIBE, name="Topic", asked=_PARTITION, answered=_PARTITION
    ),
    ApiKey.DELETE_RECORDS: _Layout(DELETE, refused={"LowWatermark": -1}),
    ApiKey.OFFSET_COMMIT: _Layout(READ),
}
NAMING_PARTITIONS: Final = frozenset(int(key) for key in _LAYOUTS)


@dataclass(frozen=True, slots=True)
class Named:
    """A row of a request. `name` is "" where the request names topics by id; `topic_id` is
    NO_TOPIC_ID where it names them by name.
    """

    name: str
    topic_id: bytes
    partition: int
    row: Message


def named_in(api_key: int, request: Message) -> Iterator[Named]:
    """Also of OffsetFetch, which names them in groups."""
    if api_key == ApiKey.OFFSET_FETCH:
        for topic, name, topic_id in _topics_of_groups(request):
            for partition in topic["PartitionIndexes"]:
                yield Named(name, topic_id, partition, {})
        return
    layout = _LAYOUTS[api_key]
    topics, rows, index = layout.asked
    for topic in request[topics]:
        name, topic_id = topic.get(layout.name, ""), topic.get("TopicId", NO_TOPIC_ID)
        for row in topic[rows]:
            yield Named(name, topic_id, row[index], row)


def positions_in(answer: Message) -> Iterator[Named]:
    """The rows of an OffsetFetch answer."""
    for topic, name, topic_id in _topics_of_groups(answer):
        for row in topic["Partitions"]:
            yield Named(name, topic_id, row["PartitionIndex"], row)


def _topics_of_groups(message: Message) -> Iterator[tuple[Message, str, bytes]]:
    """With each topic's name and id; of a group that asks for all there is none."""
    for group in message["Groups"] or [message]:
        for topic in group["Topics"] or ():
            yield topic, topic.get("Name", ""), topic.get("TopicId", NO_TOPIC_ID)


def right_for(api_key: int) -> int:
    """The AclOperation on a topic that upstream asks of the client."""
    return _LAYOUTS[api_key].right


def taken_out(api_key: int, request: Message, stops: Callable[[Named], bool]) -> list[Named]:
    """Takes out of the request what `stops`. Topics without a row that is left go, too."""
    topics, rows, _ = _LAYOUTS[api_key].asked
    found = [named for named in named_in(api_key, request) if stops(named)]
    gone = {id(named.row) for named in found}
    for topic in request[topics]:
        topic[rows] = [row for row in topic[rows] if id(row) not in gone]
    request[topics] = [topic for topic in request[topics] if topic[rows]]
    return found


def refusal(api_key: int, code: int) -> Message:
    """The row of an answer with this error, but for its partition."""
    return {"ErrorCode": code, **_LAYOUTS[api_key].refused}


def answered_with(
    api_key: int, answer: Message | None, rows: list[tuple[Named, Message]]
) -> Message:
    """The answer to the rest of a request (None: there was none) with these rows in it, too."""
    layout = _LAYOUTS[api_key]
    topics, partitions, index = layout.answered
    answer = {topics: []} if answer is None else answer
    places = {
        (topic.get(layout.name, ""), topic.get("TopicId", NO_TOPIC_ID)): topic
        for topic in answer[topics]
    }
    for named, row in rows:
        place = (named.name, named.topic_id)
        if place not in places:
            head: Message = {layout.name: named.name, partitions: []}
            if named.topic_id != NO_TOPIC_ID:
                head["TopicId"] = named.topic_id
            places[place] = head
            answer[topics].append(head)
        places[place][partitions].append({index: named.partition, **row})
    return answer
