"""Where commits are seen: what a list or a topic that cannot be seen does not prove."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition
from structlog.testing import capture_logs

from offsets.client import Refused
from offsets.commits import CONSUMER_OFFSETS, ListedCommits, TailedCommits
from offsets.core.consumer_offsets import OffsetCommitted, OffsetDeleted
from offsets.core.plan import Committed, Refusal
from offsets.errors import NotReadable
from offsets.limits import LEADERS_WAITED_S
from tests.rig.offsets_in_memory import MemoryClient

PLACE = ("billing", "topic", 0)


class _Listed(MemoryClient):
    """`listed`: the groups that the brokers list."""

    def __init__(self) -> None:
        super().__init__("B", now_ms=9_000)
        self.listed = {"billing", "shipping"}
        self.positions |= {
            PLACE: Committed(6),
            ("shipping", "topic", 0): Committed(7),
        }

    def group_states(self) -> dict[str, str]:
        return dict.fromkeys(self.listed, "Empty")


def source_on(client: _Listed) -> ListedCommits:
    source = ListedCommits(client, lambda _: True, lambda: client.now_ms, interval_ms=0)
    assert {change.group for change in source.poll()} == {"billing", "shipping"}
    return source


def test_a_group_that_is_not_listed_is_asked_for_by_its_name() -> None:
    """The list lacks the groups of a broker that is away: their commits counted as deleted."""
    client = _Listed()
    source = source_on(client)
    client.listed = {"shipping"}
    assert source.poll() == []
    del client.positions[PLACE]
    assert source.poll() == [OffsetDeleted(*PLACE)]


def test_a_group_that_is_not_told_keeps_its_commits_and_no_other_waiting() -> None:
    client = _Listed()
    source = source_on(client)
    client.unknown = {"billing": Refused(Refusal.NOT_AUTHORISED, "GroupAuthorizationFailed")}
    client.positions["shipping", "topic", 0] = Committed(9)
    (change,) = source.poll()
    assert isinstance(change, OffsetCommitted)
    assert (change.group, change.offset) == ("shipping", 9)
    assert source.latest(PLACE) == Committed(6, "", 9_000)


def test_commits_that_cannot_be_seen_are_not_no_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of topics lacks one that this user may not describe: the service waited for good."""
    client = MemoryClient("B", now_ms=9_000)
    source = TailedCommits(client, lambda _: True)

    def denied(name: str) -> int | None:
        raise NotReadable(name)

    monkeypatch.setattr(client, "topics", dict)
    monkeypatch.setattr(client, "partitions_of", denied)
    with pytest.raises(NotReadable, match=CONSUMER_OFFSETS):
        source.poll()
    assert not source.caught_up
    monkeypatch.setattr(client, "partitions_of", lambda _: None)
    assert (list(source.poll()), source.caught_up) == ([], True), "nobody has committed"


class _Message:
    """Of `__consumer_offsets`: the end of a partition, or a commit of the group `billing`."""

    def __init__(self, partition: int, *, offset: int | None = None) -> None:
        self._partition = partition
        key = struct.pack(">h", 1) + _text("billing") + _text("topic") + struct.pack(">i", 0)
        self._key = None if offset is None else key
        self._value = struct.pack(">hqi", 3, offset or 0, -1) + _text("") + struct.pack(">q", 5_000)

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._key is None else None

    def partition(self) -> int:
        return self._partition

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return self._value


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class _Log:
    """A consumer of two partitions."""

    def __init__(self) -> None:
        self.messages: list[_Message] = []

    def assign(self, places: list[TopicPartition]) -> None:
        assert len(places) == 2

    def poll(self, _: float) -> None:
        return None

    def consume(self, *_: object) -> list[_Message]:
        found, self.messages = self.messages, []
        return found


def test_a_partition_of_commits_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service waited for good, and said nothing. Now its groups wait alone, and are read
    before anything is judged once it has a leader.
    """
    client, log = MemoryClient("B", now_ms=9_000), _Log()
    leaderless, now_s = {1}, [100.0]
    monkeypatch.setattr("offsets.commits.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(client, "consumer", lambda: log)
    monkeypatch.setattr(client, "partitions_of", lambda _: 2)
    monkeypatch.setattr(client, "without_leader", lambda _: leaderless)
    source = TailedCommits(client, lambda _: True)
    with capture_logs() as logs:
        log.messages = [_Message(0)]
        assert (list(source.poll()), source.caught_up) == ([], False), "it may have one in a moment"
        for _ in range(3):
            now_s[0] += LEADERS_WAITED_S
            assert (list(source.poll()), source.caught_up) == ([], True)
        leaderless = set()
        log.messages = [_Message(1, offset=6)]
        (change,) = source.poll()
        assert not source.caught_up, "a later commit may follow"
        assert (change.group, source.latest(PLACE)) == ("billing", Committed(6, "", 5_000))
        log.messages = [_Message(1)]
        assert (list(source.poll()), source.caught_up) == ([], True)
    assert logs == [
        {
            "event": "groups_wait_for_leader",
            "log_level": "warning",
            "cluster": "B",
            "topic": CONSUMER_OFFSETS,
            "partitions": [1],
        }
    ]
