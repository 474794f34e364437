"""A process that was frozen looks whether the lease is still its own before it writes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from schema_dist import lease
from schema_dist.errors import LeaseError
from schema_dist.lease import Lease


class Scripted:
    """The lease of clusters/: each poll returns the next of `answers`, then False."""

    group = "g"

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)

    def poll(self, _wait_s: float) -> bool:
        return self._answers.pop(0) if self._answers else False

    def members(self) -> list[str]:
        return ["one", "two"]

    def release(self) -> None:
        """Nothing is held."""


def made(monkeypatch: pytest.MonkeyPatch, *answers: bool) -> Lease:
    monkeypatch.setattr(lease, "_POLL_S", 0.0)
    held = Lease({"bootstrap.servers": "127.0.0.1:1"}, "t", group="g", session_ms=10_000)
    held._lease = cast(Any, Scripted(*answers))
    return held


def test_a_frozen_process_waits_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        held = made(monkeypatch, False, True, True)
        await held.take()
        await held.still_ours()
        held._held_s -= 6.0  # frozen for more than half a session
        writing = asyncio.ensure_future(held.still_ours())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not writing.done()
        assert await held._poll()
        await writing
        held._held_s -= 6.0
        writing = asyncio.ensure_future(held.still_ours())
        with pytest.raises(LeaseError, match="is lost"):
            await held.keep()
        assert not writing.done()
        writing.cancel()
        await held.release()

    asyncio.run(run())
