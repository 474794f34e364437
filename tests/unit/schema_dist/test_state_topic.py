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
    """Two reports of a status, of which the second cannot be read."""

    def exists(self) -> bool:
        return True

    def ensure(self) -> bool:
        return False

    def read(self, take: Callable[[bytes, bytes], object]) -> None:
        take(STATUS, b'{"in_sync": 4}')
        take(STATUS, b"not JSON")

    def forget(self) -> None:
        """Nothing is kept."""


def test_a_status_that_nobody_can_read_leaves_the_one_before() -> None:
    """It is only shown to people, and yet the service ended, at each start anew."""
    state = StateTopic({"bootstrap.servers": "127.0.0.1:1"}, "_schemas-state")
    state._records = cast(CompactedTopic, Log())
    assert state.status() == {"in_sync": 4}
    assert asyncio.run(state.load()) == Ledger()
