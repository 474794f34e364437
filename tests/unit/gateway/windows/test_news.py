"""Who hears of share sessions and evictions: not every window of every member."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acquire, Event, MembersChanged, Reason, SessionLost
from gateway.windows.window import Window
from tests.rig.node_parts import GROUP, Node, topology
from tests.rig.virtual_time import now_ms, run, settle

PARTITIONS, MEMBERS = 20, 10


class Posted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[int, Event]] = []  # with the partition
        post = Window.post

        def noted(window: Window, event: Event) -> None:
            self.events.append((window.key.partition, event))
            post(window, event)

        monkeypatch.setattr(Window, "post", noted)

    def of(self, kind: type[Event]) -> list[int]:
        return [partition for partition, event in self.events if isinstance(event, kind)]


async def all_up(node: Node) -> None:
    for partition in range(PARTITIONS):
        node.log.produce(b"key-%d" % partition, partition=partition)
    for member in range(MEMBERS):
        node.beat(f"m{member}", connection=member + 1)
    await settle()
    assert all(window.dispatcher is not None for window in node.windows.table.all())


def test_a_lost_session_is_told_to_the_windows_that_have_records_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await all_up(node)
            session = node.groups.sessions.open((1, GROUP, "m0"), 1, acknowledges=False)
            holding = []
            for window in node.windows.table.all():
                event = Acquire(session.member_id, session.session_id, 1, now_ms())
                if window.acquire(event) is not None:
                    holding.append(window.key.partition)
            assert 0 < len(holding) < PARTITIONS, "the keys have other owners, too"
            posted = Posted(monkeypatch)
            node.groups.connection_lost(1, now_ms())
            assert posted.of(SessionLost) == holding

    run(work())


def test_evicted_members_are_news_of_members_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their network is gone without a word, so all are evicted at once."""

    async def work() -> None:
        async with Node(topology=topology(PARTITIONS)) as node:
            await all_up(node)
            acquired = 0
            for member in range(MEMBERS):
                session = node.groups.sessions.open(
                    (1, GROUP, f"m{member}"), member + 1, acknowledges=False
                )
                for window in node.windows.table.all():
                    event = Acquire(session.member_id, session.session_id, 1, now_ms())
                    acquired += window.acquire(event) is not None
            assert acquired == PARTITIONS
            group = node.groups.get(GROUP)
            assert group is not None
            for one in group.members.values():
                one.last_heartbeat_ms = -(10**9)
            posted = Posted(monkeypatch)
            await node.windows.watchdog.evictions.tick(now_ms())
            await asyncio.sleep(1)
            assert not posted.of(SessionLost)
            assert sorted(posted.of(MembersChanged)) == list(range(PARTITIONS))
            assert {e.reason for _, e in posted.events if isinstance(e, MembersChanged)} == {
                Reason.MEMBER_EVICTED
            }
            node.beat("m0")
            await asyncio.sleep(1)
            for window in node.windows.table.all():
                assert window.ready_for(session.member_id, now_ms()) == 0
                assert window.dispatcher is not None
                assert not any(one.in_flight for one in window.dispatcher.stats().members)

    run(work())
