"""Where commits are seen: what a list or a topic that cannot be seen does not prove."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition
from structlog.testing import capture_logs

from keyway.kafka.to_ends import NOT_KNOWN
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


def test_a_commit_in_a_topic_that_may_not_be_seen_any_more_is_not_deleted() -> None:
    """The list of a group's commits lacks it: it was told to all clusters that it is gone."""
    client = _Listed()
    source = source_on(client)
    client.hidden = {"topic"}
    assert source.poll() == []
    assert source.latest(PLACE) == Committed(6, "", 9_000)
    client.hidden = set()
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

    monkeypatch.setattr(client, "partitions_of", denied)
    with pytest.raises(NotReadable, match=CONSUMER_OFFSETS):
        source.poll()
    assert not source.caught_up
    monkeypatch.setattr(client, "partitions_of", lambda _: None)
    assert (list(source.poll()), source.caught_up) == ([], True), "nobody has committed"


class _Message:
    """Of `__consumer_offsets`: the end of a partition, or the commit `offset` of `billing`."""

    def __init__(self, partition: int, *, offset: int | None = None, at: int = 0) -> None:
        self._partition, self._at = partition, at
        key = struct.pack(">h", 1) + _text("billing") + _text("topic") + struct.pack(">i", 0)
        self._key = None if offset is None else key
        self._value = struct.pack(">hqi", 3, offset or 0, -1) + _text("") + struct.pack(">q", 5_000)

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._key is None else None

    def topic(self) -> str:
        return CONSUMER_OFFSETS

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._at

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return self._value


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class _Log:
    """A consumer of two partitions. `always`: they are written to all the time; each look at them
    takes a second then.
    """

    def __init__(self) -> None:
        self.messages: list[_Message] = []
        self.always: list[_Message] = []
        self.now_s = 100.0

    def assign(self, places: list[TopicPartition]) -> None:
        assert len(places) == 2

    def poll(self, _: float) -> None:
        return None

    def consume(self, *_: object) -> list[_Message]:
        self.now_s += bool(self.always)
        found, self.messages = self.messages, []
        return [*found, *self.always]


class _Followed:
    """A source on partitions 0 and 1, which have one record each; `leaderless`: those without a
    leader.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *leaderless: int) -> None:
        client, self.log = MemoryClient("B", now_ms=9_000), _Log()
        self.leaderless = set(leaderless)
        monkeypatch.setattr("offsets.commits.time", SimpleNamespace(monotonic=self._now))
        monkeypatch.setattr(client, "consumer", lambda: self.log)
        monkeypatch.setattr(client, "partitions_of", lambda _: 2)
        monkeypatch.setattr(client, "without_leader", lambda _: self.leaderless)
        monkeypatch.setattr(client, "ends_here", self._ends)
        self.source = TailedCommits(client, lambda _: True)

    def _now(self) -> float:
        return self.log.now_s

    def _ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: NOT_KNOWN if place[1] in self.leaderless else 1 for place in places}

    def later(self) -> None:
        self.log.now_s += LEADERS_WAITED_S

    def poll(self, *messages: _Message) -> tuple[list[int], bool]:
        """The offsets that were committed, and whether it has caught up."""
        self.log.messages = list(messages)
        changes = [change for change in self.source.poll() if isinstance(change, OffsetCommitted)]
        return [change.offset for change in changes], self.source.caught_up


def test_a_partition_of_commits_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service waited for good, and said nothing. Now its groups wait alone, and are read
    before anything is judged once it has a leader.
    """
    followed = _Followed(monkeypatch, 1)
    with capture_logs() as logs:
        assert followed.poll(_Message(0)) == ([], False), "it may have one in a moment"
        for _ in range(3):
            followed.later()
            assert followed.poll() == ([], True)
        followed.leaderless = set()
        assert followed.poll(_Message(1, offset=6)) == ([6], False), "a later commit may follow"
        assert followed.source.latest(PLACE) == Committed(6, "", 5_000)
        assert followed.poll(_Message(1)) == ([], True)
    assert logs == [
        {
            "event": "groups_wait_for_leader",
            "log_level": "warning",
            "cluster": "B",
            "topic": CONSUMER_OFFSETS,
            "partitions": [1],
        }
    ]


def test_commits_that_never_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group that commits 200 times a second no poll came back."""
    followed = _Followed(monkeypatch)
    followed.log.always = [_Message(0, offset=6, at=1)]
    assert followed.poll() == ([6], False)
    assert followed.poll(_Message(1, offset=7)) == ([6], True)


def test_commits_that_never_pause_and_a_leader_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was distributed as long as the others committed ten times a second."""
    followed = _Followed(monkeypatch, 1)
    followed.log.always = [_Message(0, offset=6, at=9)]
    assert followed.poll() == ([6], False)
    followed.later()
    assert followed.poll() == ([6], True)
    followed.leaderless = set()
    assert followed.poll(_Message(1, offset=7, at=3)) == ([6], False)
    followed.later()
    assert followed.poll() == ([6], False)
    assert followed.poll(_Message(1, offset=8, at=4)) == ([6], True), "its end is known by now"
