"""Members that left a group not long ago: keys that only they accepted wait."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.model import Acquire, MemberId
from gateway.core.share.declared_filters import InvalidKeyFilters
from gateway.core.share.membership import UNSEEN_MS_MAX, Heartbeat
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.virtual_time import now_ms, run, settle
from tests.unit.gateway.members.test_groups import QUICK, beating, names
from tests.unit.gateway.members.test_groups_elsewhere import copied

FILTERED = QUICK.model_copy(update={"unmatched_wait_ms": 60_000})
TAKES = {"a": (b"a-*",), "b": (b"b-*",), "b2": (b"b-*",)}  # by member; others: every key


def filtered(node: Node) -> None:
    node.groups.key_filters = lambda _, client: TAKES.get(client.removeprefix("client-"), ())


def nobody_unseen(node: Node) -> None:
    """The group has begun long ago."""
    group = node.groups.get(GROUP)
    assert group is not None
    group.departed.clear()


def test_keys_of_a_member_that_left_wait_for_the_next_one_and_not_for_ever() -> None:
    """A deployment: the only member that takes `b-*` is away for a while."""

    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            epoch = node.beat("a", connection=1)
            joined = node.beat("b", connection=2)
            nobody_unseen(node)
            await settle()
            node.beat("b", -1, connection=2)
            assert joined > 0
            node.log.produce(b"b-1", b"c-1", b"b-2")
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert (core.cursor, core.settled_ranges()) == (0, [(1, 1)])
            node.beat("b2", connection=2)
            await settle()
            session = node.groups.sessions.open((1, GROUP, "b2"), 2, acknowledges=False)
            event = Acquire(MemberId("b2"), session.session_id, 9, now_ms())
            acquired = node.window().acquire(event)
            assert acquired is not None
            assert acquired.offsets == [0, 2]
            await beating(node, "a", epoch, 11)  # b2 is evicted
            await beating(node, "a", epoch, 55)
            assert core.cursor == 0
            await beating(node, "a", epoch, 8)
            assert core.cursor == 3
            assert [member.member_id for member in core.members] == ["a"]

    run(work())


def test_who_left_is_awaited_also_by_the_next_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TAKES, "a2", TAKES["a"])

    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("b", connection=2)
            node.beat("a", connection=1)
            nobody_unseen(node)
            await settle()
            node.beat("b", -1, connection=2)
            node.log.produce(b"b-1", b"b-2")
            await settle()
            assert node.groups.take_over(GROUP, now_ms(), 10_000) == 1
            node.beat("a2", connection=2)  # the windows hear of a change
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert core.cursor == 0
            assert [one.filters for one in node.groups.members(GROUP, TOPIC) if one.awaited] == [
                TAKES["b"]
            ]

    run(work())


@pytest.mark.parametrize("change", [{"unmatched_wait_ms": 0}, {"reliable": False}])
def test_who_left_is_not_awaited(change: dict[str, object]) -> None:
    async def work() -> None:
        async with Node(FILTERED.model_copy(update=change)) as node:
            filtered(node)
            node.beat("a", connection=1)
            node.beat("b", connection=2)
            node.beat("b", -1, connection=2)
            assert names(node) == ["a"]

    run(work())


def test_where_some_member_takes_every_key_nobody_is_awaited() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("a", connection=1)
            node.beat("b", connection=2)
            node.beat("all", connection=3)
            node.beat("b", -1, connection=2)
            assert names(node) == ["a", "all"]
            node.beat("all", -1, connection=3)
            awaited = [one.filters for one in node.groups.members(GROUP, TOPIC) if one.awaited]
            assert awaited == [(), (b"b-*",)]

    run(work())


def test_who_left_another_node_is_awaited_here() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.groups.leads = lambda _: False
            node.groups.copy(GROUP, copied("a", "b", "b2"), now_ms())
            node.groups.copy(GROUP, copied("a", "b2"), now_ms())
            assert names(node) == ["a", "b2"]
            node.groups.copy(GROUP, copied("a"), now_ms(), ["b2"])
            assert names(node) == ["a", ""]
            await asyncio.sleep(62)
            assert names(node) == ["a"]

    run(work())


@pytest.mark.parametrize("leads", [True, False])
def test_who_left_before_the_node_started_is_awaited(leads: bool) -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            saved = copied("a")._replace(departed=(("client-b", (TOPIC,)),))
            if leads:
                node.groups.restore({GROUP: saved}, now_ms())
            else:
                node.groups.leads = lambda _: False
                node.groups.copy(GROUP, saved, now_ms())
            assert names(node) == ["a", ""]
            changed: list[list[str | None]] = []
            node.groups.on_change(lambda group: changed.append([one for one, _ in group.departed]))
            if leads:
                await beating(node, "a", node.beat("a", connection=1), 62)
            else:
                await asyncio.sleep(62)
            assert [one.filters for one in node.groups.members(GROUP, TOPIC) if one.awaited] == []
            assert "client-b" not in changed[-1], "nor is it saved any longer"

    run(work())


HOSTILE = b"a?" * 100  # between two stars: 13,000 of the 65,536 that a group's filters may cost


def hostile(node: Node) -> None:
    node.groups.key_filters = lambda _, client: (b"*" + HOSTILE + client.encode() + b"*",)


def test_a_member_whose_filters_would_be_too_many_for_its_group_is_refused() -> None:
    """Each new key is matched with all of them: 50 members held the node up for good."""

    async def work() -> None:
        async with Node(FILTERED) as node:
            hostile(node)
            joined = node.beat("a", connection=1)
            for name in "bcd":
                node.beat(name, connection=1)
            with pytest.raises(InvalidKeyFilters, match="too many together"):
                node.beat("e", connection=1)
            assert node.beat("a", joined, connection=1) >= joined, "it stays"
            node.beat("a", -1, connection=1)
            node.beat("h", connection=1)  # there is room again

    run(work())


def test_if_more_have_left_than_may_be_there_any_key_is_awaited() -> None:
    """Some of their keys were skipped."""

    async def work() -> None:
        async with Node(FILTERED) as node:
            hostile(node)
            node.beat("stays", connection=1)
            for at in range(20):
                node.beat(f"m{at}", connection=1)
                node.beat(f"m{at}", -1, connection=1)
            assert awaited(node) == [()]

    run(work())


@pytest.mark.parametrize("other", [(), ("other",)], ids=["nobody stays", "a member of a topic"])
def test_the_time_does_not_run_while_nobody_reads_the_topic(other: tuple[str, ...]) -> None:
    """All were away for longer than a member is awaited, and come back one after the other."""

    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            epoch = beats(node, "stays", 0, other) if other else 0
            node.beat("a", connection=1)
            node.beat("b", connection=2)
            await settle()
            for name in ("a", "b"):
                node.beat(name, -1)
            node.log.produce(b"b-1")
            for _ in range(18):
                await asyncio.sleep(10)
                epoch = beats(node, "stays", epoch, other) if other else 0
            node.beat("a", connection=1)
            await asyncio.sleep(2)
            core = node.window().dispatcher
            assert core is not None
            assert core.cursor == 0
            node.beat("b", connection=2)
            await settle()
            assert await taken(node, "b") == [0]

    run(work())


def test_who_gives_a_topic_up_is_awaited_as_one_that_leaves() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("a", connection=1)
            epoch = node.beat("b", connection=2)
            await settle()
            epoch = beats(node, "b", epoch, ("other",))
            node.log.produce(b"b-1")
            await settle()
            beats(node, "b", epoch, (TOPIC,))
            await settle()
            assert await taken(node, "b") == [0]

    run(work())


def awaited(node: Node) -> list[tuple[bytes, ...]]:
    return [one.filters for one in node.groups.members(GROUP, TOPIC) if one.awaited]


def test_members_that_come_after_the_first_of_a_group_get_their_keys() -> None:
    """Redis has lost its data, the node is new, or so is the group: nobody knows who else reads the
    topic.
    """

    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            epoch = node.beat("a", connection=1)
            await settle()
            node.log.produce(b"b-1", b"a-1", b"c-1", b"b-2")
            await beating(node, "a", epoch, UNSEEN_MS_MAX // 1000 - 5)
            assert await taken(node, "a") == [1]
            node.beat("b", connection=9)
            await settle()
            assert await taken(node, "b") == [0, 3]
            core = node.window().dispatcher
            assert core is not None
            assert core.settled_ranges() == []
            for _ in range(7):
                node.beat("b", 2, connection=9)
                await beating(node, "a", epoch, 1)
            assert core.settled_ranges() == [(2, 2)], "nobody has come for it"
            node.log.produce(b"c-2")
            await settle()
            assert core.settled_ranges() == [(2, 2), (4, 4)], "skipped at once"

    run(work())


def test_who_begins_with_another_topic_may_not_be_the_only_one() -> None:
    """A deployment adds a topic, one member after the other."""

    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            epoch = beats(node, "a", 0, ("other",))
            for _ in range(UNSEEN_MS_MAX // 1000 + 1):
                await asyncio.sleep(1)
                epoch = beats(node, "a", epoch, ("other",))
            group = node.groups.get(GROUP)
            assert group is not None
            assert group.departed == {}
            beats(node, "a", epoch, ("other", TOPIC))
            assert awaited(node) == [()]
            node.beat("b", connection=2)
            assert [one for one, _ in group.departed] == [None], "it is the topic's second member"

    run(work())


def test_another_client_id_brings_its_own_filters() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("a", connection=1)
            nobody_unseen(node)
            beat = Heartbeat("a", 0, None, (TOPIC,), "client-b", "127.0.0.1", 1)
            epoch = node.groups.heartbeat(GROUP, beat, node.topology.topics.get, now_ms())
            there = node.groups.members(GROUP, TOPIC)
            assert [(one.filters, one.awaited) for one in there] == [
                (TAKES["b"], False),
                (TAKES["a"], True),
            ]
            beat = Heartbeat("a", epoch.member_epoch, None, None, "client-all", "127.0.0.1", 1)
            node.groups.heartbeat(GROUP, beat, node.topology.topics.get, now_ms())
            assert [one.filters for one in node.groups.members(GROUP, TOPIC)] == [()]

    run(work())


def test_a_shorter_wait_counts_at_once() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("a", connection=1)
            node.beat("b", connection=2)
            nobody_unseen(node)
            await settle()
            node.beat("b", -1, connection=2)
            node.log.produce(b"b-1")
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert core.cursor == 0
            section = node.config.groups[0].model_copy(update={"unmatched_wait_ms": 0})
            node.settings.reload(node.config.model_copy(update={"groups": (section,)}))
            await settle()
            assert core.cursor == 1

    run(work())


def test_who_was_there_before_a_node_that_could_not_read_its_rows_at_once_is_awaited() -> None:
    async def work() -> None:
        async with Node(FILTERED) as node:
            filtered(node)
            node.beat("a", connection=1)
            nobody_unseen(node)
            await settle()
            saved = copied("a", "b")
            node.groups.restore_late({GROUP: saved, "other": saved}, now_ms())
            assert names(node) == ["a", ""]
            assert awaited(node) == [TAKES["b"]]
            assert [one.member_id for one in node.groups.all()[1].members.values()] == ["a", "b"]
            node.log.produce(b"b-1")
            await settle()
            core = node.window().dispatcher
            assert core is not None
            assert core.cursor == 0

    run(work())


def beats(node: Node, name: str, epoch: int, topics: tuple[str, ...]) -> int:
    beat = Heartbeat(name, epoch, None, topics, f"client-{name}", "127.0.0.1", 9)
    answer = node.groups.heartbeat(GROUP, beat, node.topology.topics.get, now_ms())
    return answer.member_epoch


async def taken(node: Node, name: str) -> list[int]:
    session = node.groups.sessions.open((9, GROUP, name), 9, acknowledges=False)
    acquired = node.window().acquire(Acquire(MemberId(name), session.session_id, 9, now_ms()))
    return [] if acquired is None else acquired.offsets
