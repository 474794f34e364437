"""What a target's state topic holds that no service has written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from keyway.kafka.compacted import CompactedTopic
from schema_dist.core.ledger import Ledger
from schema_dist.state_topic import StateTopic

STATUS = b'{"kind":"status"}'


class Log:
    """Two reports of a status, of which the second cannot be read; and signs of life."""

    beats: tuple[bytes, ...] = ()

    def exists(self) -> bool:
        return True

    def ensure(self) -> bool:
        return False

    def read(self, take: Callable[[bytes, bytes], object]) -> None:
        take(STATUS, b'{"in_sync": 4}')
        take(STATUS, b"not JSON")
        for beat in self.beats:
            take(b'{"kind":"beat","subject":""}', beat)

    def forget(self) -> None:
        """Nothing is kept."""


def test_a_status_that_nobody_can_read_leaves_the_one_before() -> None:
    """It is only shown to people, and yet the service ended, at each start anew."""
    state = StateTopic({"bootstrap.servers": "127.0.0.1:1"}, "_schemas-state")
    state._records = cast(CompactedTopic, Log())
    assert state.status() == {"in_sync": 4}
    assert asyncio.run(state.load()) == Ledger()


def test_the_status_is_as_old_as_the_last_sign_of_life() -> None:
    state, log = StateTopic({"bootstrap.servers": "127.0.0.1:1"}, "_schemas-state"), Log()
    state._records = cast(CompactedTopic, log)
    log.beats = (b'{"at_ms": 1, "problem": "away"}', b'{"at_ms": 2, "problem": null}', b"not JSON")
    assert state.status() == {"in_sync": 4, "at_ms": 2, "problem": None}
    assert asyncio.run(state.load()) == Ledger(), "it is no entry of the ledger"
