"""A commit that fails is made later: it does not count as made because it was written down."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from keyway.clusters.core.tree import ClusterName, Inner, Leaf, Level, build_tree
from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.client import GroupPlace, Refused
from offsets.committer import Committer
from offsets.core.entries import Entry
from offsets.core.model import Progress
from offsets.core.plan import Committed, Mode, Refusal, Row
from offsets.core.switches import SwitchReport
from offsets.errors import ClusterAway, LeaseNotSure
from offsets.limits import COMMITTED_AGAIN_AT_ONCE, COMMITTED_AGAIN_MS
from offsets.options import Options
from offsets.state_topic import StateTopic
from tests.rig.offsets_in_memory import (
    FACTS,
    RECORDS,
    STREAM,
    MemoryClient,
    MemoryPartitions,
    MemorySource,
)

LEVEL_1 = Inner(Level(1), (Leaf(ClusterName("A")), Leaf(ClusterName("C"))))
TREE = build_tree(Inner(Level(2), (Leaf(ClusterName("B")), LEVEL_1)))
AWAY = ClusterAway("B: commit: no answer")
FAILED = Refused(Refusal.KAFKA_ERROR, "UNKNOWN_SERVER_ERROR")
GROUPS = ("billing", "shipping")


def committer_on(
    client: MemoryClient, *, mode: Mode = Mode.EXACT, read: int = RECORDS
) -> Committer:
    return Committer(
        client,
        MemoryPartitions(client, read=read),
        StateTopic(client),
        Options(mode),
        now_ms=lambda: client.now_ms,
        tree=TREE,
        source=MemorySource(client),
        facts={"topic": FACTS},
    )


def entry(group: str, offset: int, committed_ms: int, *, settled: int = 0) -> Entry:
    """`settled`: how many records behind the cursor's are, of a Key-Shared group."""
    ranges = {STREAM: [(offset + 1, offset + settled)]} if settled else {}
    return Entry(
        group,
        "topic",
        0,
        "A",
        committed_ms,
        offset=offset,
        partitions=1,
        exact=True,
        progress=Progress({STREAM: offset}, {STREAM: offset}, ranges),
        key_shared=bool(settled),
    )


def try_once(committer: Committer, entries: list[Entry]) -> None:
    with suppress(ClusterAway):
        committer.apply(entries)


def positions(client: MemoryClient) -> list[int]:
    places = [(group, "topic", 0) for group in GROUPS]
    return [client.positions[place].offset for place in places if place in client.positions]


@pytest.mark.parametrize("failure", [AWAY, FAILED], ids=["away", "refused"])
def test_a_commit_that_failed_once_is_made_later(failure: ClusterAway | Refused) -> None:
    """And those of the groups behind it. The entries are no later than the commits made here."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    committer.apply([entry(group, 6, 1_000) for group in GROUPS])
    assert positions(client) == [6, 6]
    client.now_ms, client.fail = 9_000, failure
    later = [entry(group, 12, 4_000) for group in GROUPS]
    try_once(committer, later)
    assert positions(client)[0] == 6
    assert [outcome.refusals for outcome in committer.apply(later)] == [(), ()]
    assert positions(client) == [12, 12]


def test_the_settled_records_of_a_commit_that_failed_are_committed_later() -> None:
    """The cursor stays."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    committer.apply([entry("billing", 6, 1_000, settled=2)])
    client.now_ms, client.fail = 9_000, AWAY
    later = entry("billing", 6, 4_000, settled=20)
    try_once(committer, [later])
    (row,) = committer.apply([later])
    assert row.refusals == ()
    there = client.positions["billing", "topic", 0]
    assert settled_metadata.decode(there.offset, there.metadata) == [(7, 26)]


def test_a_reset_to_where_the_group_was_before_is_the_operators() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    for at, ms in ((6, 1_000), (12, 4_000)):
        committer.apply([entry("billing", at, ms)])
    client.positions["billing", "topic", 0] = Committed(6, "", 10_000)
    (row,) = committer.apply([entry("billing", 12, 4_000)])
    assert row.refusals == (Refusal.OVERTAKEN,)


def test_by_timestamp_no_record_is_passed_that_came_while_kafka_was_asked() -> None:
    """The log ends at 100 now; the search for the timestamp found nothing in the records before."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client, mode=Mode.TIMESTAMP, read=40)
    late = replace(entry("billing", 7, 1_000), timestamp_ms=1_000, progress=None, exact=False)
    (row,) = committer.apply([late])
    assert (row.new, row.refusals) == (40, ())


def test_by_timestamp_a_partition_that_is_not_read_yet_waits() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client, mode=Mode.TIMESTAMP)
    committer.partitions.leave([("topic", 0)])
    late = replace(entry("billing", 7, 1_000), timestamp_ms=1_000)
    (row,) = committer.apply([late])
    assert (row.new, row.refusals) == (None, (Refusal.NOT_INDEXED,))
    assert client.positions == {}


def own_work(client: MemoryClient, offset: int) -> None:
    client.positions["billing", "topic", 0] = Committed(offset, "", client.now_ms)


def restart(client: MemoryClient, committer: Committer, ahead: Entry, *, away_ms: int) -> list[Row]:
    """The group ends, and has no members for `away_ms`; the rows of that time."""
    client.active = set()
    rows = committer.apply([ahead])
    client.now_ms += away_ms
    return [*rows, *committer.apply([ahead])]


def test_a_restart_does_not_move_a_group_away_from_its_own_work() -> None:
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    committer.options = replace(committer.options, empty_ms=30_000)
    client.active = {"billing"}
    own_work(client, 10)
    ahead = entry("billing", 60, 101_000)
    assert committer.apply([ahead])[0].refusals == (Refusal.GROUP_ACTIVE,)
    for row in restart(client, committer, ahead, away_ms=29_000):
        assert row.refusals == (Refusal.RECENTLY_ACTIVE,)
    client.active = {"billing"}
    committer.apply([ahead])
    assert restart(client, committer, ahead, away_ms=30_000)[1].refusals == ()
    assert positions(client)[0] == 60


def test_a_group_that_stood_by_is_moved_at_once() -> None:
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    committer.options = replace(committer.options, empty_ms=30_000)
    for offset in (6, 12):
        (row,) = committer.apply([entry("billing", offset, 101_000 + offset)])
        assert row.refusals == ()
    assert client.positions["billing", "topic", 0].offset == 12


def test_a_group_at_work_on_both_clusters_is_not_moved_by_itself() -> None:
    """Both have members and make progress. One of them is away for longer than a restart takes."""
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    committer.options = replace(committer.options, empty_ms=30_000)
    client.active = {"billing"}
    for at in range(5):
        own_work(client, 10 + at)
        committer.apply([entry("billing", 60 + at, client.now_ms)])
        client.now_ms += 10_000
    ahead = entry("billing", 70, client.now_ms)
    for row in restart(client, committer, ahead, away_ms=3_600_000):
        assert Refusal.AT_WORK_ON_BOTH in row.refusals
    assert positions(client)[:1] == [14]
    again = committer_on(client)
    again.state_topic.state.both |= committer.state_topic.state.both  # it is in the topic
    again.options = replace(again.options, force=True)
    assert again.apply([ahead])[0].refusals == ()
    assert positions(client)[:1] == [70]
    assert not again.state_topic.state.both, "the operator has decided"


def test_the_last_commits_elsewhere_may_come_late() -> None:
    """The group has moved here for good; the other cluster was away, or its members took long."""
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    client.active = {"billing"}
    own_work(client, 10)
    committer.apply([entry("billing", 60, 80_000)])
    client.now_ms += 600_000
    committer.apply([entry("billing", 62, 99_000)])
    committer.apply([entry("billing", 64, 120_000)])
    assert not committer.state_topic.state.both


def test_progress_behind_an_unfinished_switch_is_not_taken() -> None:
    """B's link goes to A now. C has not passed on what it had, so A's group may have passed records
    that A gets later.
    """
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    switch = SwitchReport("B", 2, "B", generation=1, target="A", rewind=False, done=True)
    committer.state_topic.write_told([switch])
    (row,) = committer.apply([entry("billing", 40, 1_000)])
    assert row.refusals == (Refusal.UNFINISHED_SWITCH,)
    assert client.positions == {}
    stopped = frozenset({row.topic})
    committer.state_topic.write_told([replace(switch, source="C", stopped=stopped)])
    (row,) = committer.apply([entry("billing", 40, 1_000)])
    assert row.refusals == (Refusal.UNFINISHED_SWITCH,)
    stopped = frozenset({"another"})
    committer.state_topic.write_told([replace(switch, source="C", stopped=stopped)])
    (row,) = committer.apply([entry("billing", 40, 1_000)])
    assert (row.refusals, positions(client)) == ((), [40])


def test_after_a_restart_what_was_done_is_not_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each search may read a part of a log again. The row is the one that was shown."""
    searched: list[object] = []
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    told = entry("billing", 40, 1_000)
    (before,) = committer.apply([told])
    again = committer_on(client)
    again.state_topic = committer.state_topic
    with monkeypatch.context() as patch:
        patch.setattr(again.partitions, "all_answered", searched.append)
        (row,) = again.apply([told])
    assert searched == [{}]
    assert (row.new, row.refusals, row.mode) == (before.new, (), before.mode)
    client.positions["billing", "topic", 0] = Committed(3, "", 6_000)
    again = committer_on(client)
    again.state_topic = committer.state_topic
    (row,) = again.apply([told])
    assert row.refusals == (Refusal.OVERTAKEN,)


def test_a_group_whose_positions_are_not_told_keeps_no_other_waiting() -> None:
    """One that this user may not read, or that has no coordinator, failed every round of all."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    client.unknown = {"billing": Refused(Refusal.NOT_AUTHORISED, "GroupAuthorizationFailed")}
    entries = [entry(group, 40, 1_000) for group in GROUPS]
    rows = committer.apply(entries)
    assert [row.refusals for row in rows] == [(Refusal.NOT_AUTHORISED,), ()]
    assert (rows[0].new, rows[0].error) == (None, "GroupAuthorizationFailed")
    assert [place[0] for place in client.positions] == ["shipping"]
    client.unknown = {}
    assert [row.refusals for row in committer.apply(entries)] == [(), ()]
    assert positions(client) == [40, 40], "nothing else has changed since"


def test_a_group_that_does_not_follow_any_more_is_not_moved_by_what_stands_on_the_state_topic() -> (
    None
):
    """Its position here ended with Kafka's retention of offsets; the old entry set it anew."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    committer.state_topic.write_told([entry(group, 40, 1_000) for group in GROUPS])
    committer.follows = lambda place: place[0] != "billing"
    (left,) = committer.entries_of(committer.state_topic.state.places)
    assert left.group == "shipping"


HOUR_MS = 3_600_000


def test_a_clock_that_is_ahead_elsewhere_moves_no_group_back_or_beyond_its_records() -> None:
    """A commit on A looks an hour younger than it is."""
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    own_work(client, 40)
    (row,) = committer.apply([entry("billing", 20, client.now_ms + HOUR_MS)])
    assert Refusal.TARGET_AHEAD in row.refusals
    (row,) = committer.apply([entry("billing", 60, client.now_ms + HOUR_MS)])
    assert (row.new, row.refusals) == (60, ()), "what A's group has processed, and no record more"


def test_a_clock_that_is_behind_elsewhere_delays_a_move_by_the_difference() -> None:
    client = MemoryClient("B", now_ms=100_000)
    committer = committer_on(client)
    own_work(client, 40)
    behind_ms = client.now_ms - HOUR_MS
    (row,) = committer.apply([entry("billing", 60, behind_ms)])
    assert (row.refusals, positions(client)) == ((Refusal.OVERTAKEN,), [40])
    (row,) = committer.apply([entry("billing", 60, behind_ms + HOUR_MS + 1)])
    assert (row.refusals, positions(client)) == ((), [60])


def test_a_commit_that_stands_is_made_again_before_kafka_forgets_it() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    entries = [entry(group, 40, 1_000) for group in GROUPS]
    committer.apply(entries)

    def made_ms() -> list[int | None]:
        return [client.positions[group, "topic", 0].committed_ms for group in GROUPS]

    client.now_ms += COMMITTED_AGAIN_MS - 1
    committer.apply(entries)
    assert made_ms() == [5_000, 5_000]
    client.now_ms += 1
    client.fail = AWAY
    try_once(committer, entries)
    assert made_ms() == [5_000, 5_000]
    assert [row.refusals for row in committer.apply(entries)] == [(), ()]
    assert made_ms() == [client.now_ms] * 2
    again = committer_on(client)  # after a restart
    again.state_topic = committer.state_topic
    made = client.now_ms
    for wait_ms in (COMMITTED_AGAIN_MS - 1, 1):
        client.now_ms += wait_ms
        again.apply(entries)
    assert made_ms() == [made + COMMITTED_AGAIN_MS] * 2
    assert positions(client) == [40, 40]


class OldSource(MemorySource):
    """Has not read for a while."""

    def __init__(self, client: MemoryClient, seen: dict[GroupPlace, Committed]) -> None:
        super().__init__(client)
        self._latest = seen

    def latest(self, place: GroupPlace) -> Committed | None:
        return self._latest.get(place)


def test_a_commit_made_again_overwrites_no_work_of_the_group_here() -> None:
    """Kafka's answer counts, not what was seen of it before."""
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    told = entry("billing", 40, 1_000)
    committer.apply([told])
    committer.source = OldSource(client, dict(client.positions))
    client.now_ms += COMMITTED_AGAIN_MS
    client.positions["billing", "topic", 0] = Committed(60, "", client.now_ms - 1)
    committer.apply([told])
    assert positions(client) == [60]


def test_a_commit_that_kafka_has_forgotten_is_made_again_at_once() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    told = entry("billing", 40, 1_000)
    committer.apply([told])
    client.positions.clear()
    committer.apply([told])
    assert positions(client) == [40]


def test_only_some_commits_are_made_again_in_one_round() -> None:
    client = MemoryClient("B", now_ms=5_000)
    committer = committer_on(client)
    entries = [entry(f"g{at}", 40, 1_000) for at in range(COMMITTED_AGAIN_AT_ONCE + 7)]
    committer.apply(entries)
    client.now_ms += COMMITTED_AGAIN_MS
    counts = []
    for _ in range(3):
        committer.apply(entries)
        counts.append(sum(at.committed_ms == client.now_ms for at in client.positions.values()))
    assert counts == [COMMITTED_AGAIN_AT_ONCE, len(entries), len(entries)]


def test_nothing_is_committed_once_another_process_may_have_the_lease() -> None:
    """Its commit would put a group back behind what the other one has committed since."""
    client, looks = MemoryClient("B", now_ms=5_000), 0
    committer = committer_on(client)
    committer.apply([entry("billing", 6, 1_000)])

    def require() -> None:
        nonlocal looks
        looks += 1
        if looks > 1:  # the commit has been written down
            raise LeaseNotSure("B: the lease may be lost")

    committer.state_topic.require_lease = require
    with pytest.raises(LeaseNotSure):
        committer.apply([entry("billing", 12, 4_000)])
    assert positions(client) == [6]
    committer.state_topic.require_lease = lambda: None
    committer.apply([entry("billing", 12, 4_000)])
    assert positions(client) == [12], "it is ours again"
