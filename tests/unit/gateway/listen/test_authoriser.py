"""Upstream decides a client's permissions, asked on its own connection, once and for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.cluster.acl import DESCRIBE
from gateway.core.wire.apis import ApiKey
from gateway.listen.authoriser import Authoriser
from gateway.listen.limits import AUTHORISATION_MS_MAX, AUTHORISATIONS_MAX
from gateway.upstream.errors import Unreachable
from tests.rig.share_client import ALL_OPERATIONS, ScriptedConnection


@dataclass
class Clock:
    now_ms: int = 1_000

    def __call__(self) -> int:
        return self.now_ms


def story(tell: Callable[[Authoriser, Clock], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    asyncio.run(tell(Authoriser(clock), clock))


def test_reading_a_group_is_asked_once_for_a_while() -> None:
    async def tell(authoriser: Authoriser, clock: Clock) -> None:
        client = ScriptedConnection(1)
        for _ in range(3):
            assert await authoriser.may_read_group(client.as_connection(), "g")
        assert client.asked == [ApiKey.HEARTBEAT]
        client.group_denied = True
        clock.now_ms += AUTHORISATION_MS_MAX - 1
        assert await authoriser.may_read_group(client.as_connection(), "g")
        clock.now_ms += 1
        assert not await authoriser.may_read_group(client.as_connection(), "g")
        assert not await authoriser.may_read_group(client.as_connection(), "g")
        assert client.asked == [ApiKey.HEARTBEAT] * 2

    story(tell)


def test_one_client_does_not_speak_for_another() -> None:
    async def tell(authoriser: Authoriser, _clock: Clock) -> None:
        friend, foe = ScriptedConnection(1), ScriptedConnection(2, group_denied=True)
        assert await authoriser.may_read_group(friend.as_connection(), "g")
        assert not await authoriser.may_read_group(foe.as_connection(), "g")
        assert await authoriser.may_describe_group(friend.as_connection(), "g")
        assert not await authoriser.may_describe_group(foe.as_connection(), "g")
        assert await authoriser.group_operations(friend.as_connection(), "g") == ALL_OPERATIONS

    story(tell)


def test_topics_are_asked_together_and_only_the_unknown_ones() -> None:
    async def tell(authoriser: Authoriser, _clock: Clock) -> None:
        client = ScriptedConnection(1, denied={"secret"})
        asked = client.as_connection()
        assert await authoriser.denied_topics(asked, ["a", "secret"]) == {"secret"}
        assert await authoriser.denied_topics(asked, ["secret", "a"]) == {"secret"}
        assert await authoriser.denied_topics(asked, []) == set()
        assert client.asked == [ApiKey.METADATA]
        assert await authoriser.denied_topics(asked, ["a", "b"]) == set()
        assert await authoriser.denied_topics(asked, ["a"], operation=DESCRIBE) == set()
        assert client.asked == [ApiKey.METADATA] * 2

    story(tell)


def test_a_connection_that_is_gone_is_forgotten() -> None:
    async def tell(authoriser: Authoriser, _clock: Clock) -> None:
        client = ScriptedConnection(1)
        await authoriser.may_read_group(client.as_connection(), "g")
        authoriser.connection_lost(1)
        authoriser.connection_lost(1)
        assert authoriser._verdicts == {}
        await authoriser.may_read_group(client.as_connection(), "g")
        assert len(client.asked) == 2

    story(tell)


def test_what_is_remembered_of_a_connection_is_bounded() -> None:
    async def tell(authoriser: Authoriser, _clock: Clock) -> None:
        client = ScriptedConnection(1)
        for at in range(2 * AUTHORISATIONS_MAX):
            await authoriser.may_read_group(client.as_connection(), f"g{at}")
        assert len(authoriser._verdicts[1]) <= AUTHORISATIONS_MAX

    story(tell)


def test_an_upstream_that_is_gone_is_no_verdict() -> None:
    async def tell(authoriser: Authoriser, _clock: Clock) -> None:
        client = ScriptedConnection(1, failure=Unreachable("gone"))
        with pytest.raises(Unreachable):
            await authoriser.may_read_group(client.as_connection(), "g")
        client.failure = None
        assert await authoriser.may_read_group(client.as_connection(), "g")

    story(tell)
