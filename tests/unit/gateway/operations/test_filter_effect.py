"""The effect of other key filters: the globs of each member, and the keys that would move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from redis.asyncio import Redis

from dispatcher.core.model import Acknowledge, Acquire, Member, MemberId, SessionId
from dispatcher.core.routing.ring import Router
from gateway.config.file import Config
from gateway.config.groups import FilterRule, GroupSection
from gateway.members.key_filters import KeyFilters
from gateway.operations.filter_effect import FilterEffects
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, Node
from tests.rig.virtual_time import now_ms, run, settle

KEYS = [b"%b-%d" % (prefix, at) for prefix in (b"eu", b"us") for at in range(20)]
M1, M2, S1 = MemberId("m1"), MemberId("m2"), SessionId("s1")


def story(
    tell: Callable[[Node, FilterEffects], Awaitable[None]], configured: tuple[FilterRule, ...] = ()
) -> None:
    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest")
        admin = Admin(section=section)
        async with admin.node as node:
            node.log.produce(*KEYS, *KEYS, None)
            node.beat("m1")
            node.beat("m2")
            await settle()
            own = GroupSection(filters=configured)
            config = Config(groups=(own,))
            filters = KeyFilters(config, cast(Redis, None), lambda: 1_000)
            await tell(node, FilterEffects(node.groups, node.windows.table, filters))

    run(work())


def rule(client_id: str, *keys: str) -> FilterRule:
    return FilterRule(client_id=client_id, keys=keys)


def owned(*members: Member) -> list[int]:
    router = Router(members)
    return [int(router.owner_of(key, 0)) for key in KEYS]


def test_keys_that_move_are_counted_once_each() -> None:
    async def tell(_: Node, effects: FilterEffects) -> None:
        effect = await effects.of(GROUP, [rule("client-m1", "eu-*"), rule("*", "*")])
        before = owned(Member(M1), Member(M2))
        after = owned(Member(M1, (b"eu-*",)), Member(M2, (b"*",)))
        assert effect.known == len(KEYS)
        assert effect.moved == sum(a != b for a, b in zip(before, after, strict=True)) > 0
        assert effect.dropped == 0
        assert [(member.client_id, member.before, member.after) for member in effect.members] == [
            ("client-m1", (), (b"eu-*",)),
            ("client-m2", (), (b"*",)),
        ]

    story(tell)


def test_keys_that_nobody_takes_are_counted() -> None:
    async def tell(_: Node, effects: FilterEffects) -> None:
        effect = await effects.of(GROUP, [rule("*", "us-1?")])
        assert effect.dropped == 30
        assert effect.moved >= 30

    story(tell)


def test_without_rules_those_of_the_configuration_count() -> None:
    async def tell(_: Node, effects: FilterEffects) -> None:
        effect = await effects.of(GROUP, None)
        assert [member.after for member in effect.members] == [(b"eu-*",), (b"eu-*",)]
        # The windows of this test have members without filters.
        assert effect.dropped == 20

    story(tell, (rule("*", "eu-*"),))


def test_settled_keys_do_not_count() -> None:
    async def tell(node: Node, effects: FilterEffects) -> None:
        while acquired := node.window().acquire(Acquire(M1, S1, 100, now_ms())):
            settled = [(at, at, b"\1") for at in acquired.offsets]
            await node.window().ask(Acknowledge(M1, S1, settled, now_ms()))
        effect = await effects.of(GROUP, [])
        assert effect.known == owned(Member(M1), Member(M2)).count(1)
        assert effect.moved == 0

    story(tell)


def test_a_group_that_is_not_there_has_no_keys() -> None:
    async def tell(_: Node, effects: FilterEffects) -> None:
        effect = await effects.of("none", [rule("*", "eu-*")])
        assert (effect.members, effect.known) == ([], 0)

    story(tell)
