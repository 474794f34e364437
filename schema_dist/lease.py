"""The right to distribute from a primary: one process has it (keyway/kafka/lease.py), a second one
is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from keyway.kafka import lease
from schema_dist.errors import AwayError, LeaseError
from schema_dist.limits import LEASE_S_MAX

_POLL_S = 0.1
_SURE_SHARE = 0.5  # of a session: nobody else can have had the lease since


class Lease:
    """Taken by `take`, kept by `keep`, which ends with LeaseError when it is lost."""

    def __init__(
        self, client_settings: Mapping[str, str], topic: str, *, group: str, session_ms: int
    ) -> None:
        self._lease = lease.Lease(client_settings, topic, group=group, session_ms=session_ms)
        self._session_s = session_ms / 1000
        self._held_s = 0.0  # when it was ours for sure
        # One thread: librdkafka's callbacks run where the consumer is polled.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    async def take(self) -> None:
        """Returns when the lease is ours. Raises LeaseError if another process has it after the
        time in which that of a killed one would have ended, AwayError if Kafka does not answer.
        """
        until = time.monotonic() + self._session_s + _POLL_S + 1.0
        while not await self._poll():
            if time.monotonic() > until:
                loop = asyncio.get_running_loop()
                members = await loop.run_in_executor(self._thread, self._lease.members)
                if len(members) > 1:
                    raise LeaseError(
                        f"another process distributes the schemas of this primary (group"
                        f" {self._lease.group}, members {', '.join(members)})"
                    )
                if time.monotonic() > until + LEASE_S_MAX:
                    why = f": {self._lease.problem}" if self._lease.problem else ""
                    raise AwayError(
                        f"the lease (group {self._lease.group}) was not given in time{why}"
                    )

    async def keep(self) -> None:
        """Never returns. Raises LeaseError when the lease is lost."""
        while await self._poll():
            pass
        raise LeaseError(
            f"the lease (group {self._lease.group}) is lost: this process was too slow"
        )

    async def still_ours(self) -> None:
        """Returns once it is sure that no other process has the lease: a process that was frozen
        must look before it writes. If the lease is lost, `keep` ends the process.
        """
        while time.monotonic() - self._held_s > self._session_s * _SURE_SHARE:  # noqa: ASYNC110 - time ends it
            await asyncio.sleep(_POLL_S)

    async def release(self) -> None:
        """Gives the lease up; safe to call at any time, once."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._lease.release)
        self._thread.shutdown(wait=False)

    async def _poll(self) -> bool:
        asked_s = time.monotonic()
        loop = asyncio.get_running_loop()
        held = await loop.run_in_executor(self._thread, self._lease.poll, _POLL_S)
        if held:
            self._held_s = asked_s
        return held
