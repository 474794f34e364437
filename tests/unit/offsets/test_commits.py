"""Where commits are seen: what a list or a topic that cannot be seen does not prove."""

from __future__ import annotations

import pytest

from offsets.client import Refused
from offsets.commits import CONSUMER_OFFSETS, ListedCommits, TailedCommits
from offsets.core.consumer_offsets import OffsetCommitted, OffsetDeleted
from offsets.core.plan import Committed, Refusal
from offsets.errors import NotReadable
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
