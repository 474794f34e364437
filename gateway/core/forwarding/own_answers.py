"""Answers to requests of the gateway's own. The topics of Metadata are decoded one by one, when
somebody looks at their partitions: most callers want names, ids and rights, and all partitions of a
cluster hold the event loop.
"""

from __future__ import annotations

from typing import Any

from gateway.core.forwarding.metadata_answer import ListedTopic, MetadataAnswer
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.frames import parse_response_header
from gateway.core.wire.schema import Message


class TopicRow(dict[str, Any]):
    """A topic of Metadata, as the codec decodes it."""

    def __init__(self, answer: MetadataAnswer, topic: ListedTopic) -> None:
        super().__init__(
            Name=topic.name,
            TopicId=topic.topic_id,
            ErrorCode=topic.error_code,
            TopicAuthorizedOperations=topic.operations,
        )
        self._answer = answer
        self._topic = topic

    def __missing__(self, field: str) -> Any:  # noqa: ANN401 - as the row of a Message
        row = self._answer.row(self._topic)
        for name, value in row.items():
            self.setdefault(name, value)
        return row[field]

    @property
    def raw(self) -> bytes | None:
        """Its bytes; None if somebody has looked at its partitions, and may have changed it."""
        return None if "Partitions" in self else self._answer.raw(self._topic)


def own_answer(key: int, version: int, frame: bytes) -> Message:
    """Raises WireError."""
    body_at = parse_response_header(key, version, frame).body_at
    if key != ApiKey.METADATA:
        return decode_response(key, version, frame, body_at)
    answer = MetadataAnswer(version, frame, body_at)
    return answer.message | {"Topics": [TopicRow(answer, topic) for topic in answer.topics]}


def raw_rows(answer: Message) -> dict[str, bytes]:
    """By name, the bytes of the topics that are as they came."""
    rows = ((row["Name"], row.raw) for row in answer["Topics"] if isinstance(row, TopicRow))
    return {name: raw for name, raw in rows if name is not None and raw is not None}
