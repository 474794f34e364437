"""The right to distribute from a primary: one process has it, a second one is refused. A lease
(clusters/lease.py) on the primary cluster, over its state topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from clusters.lease import Lease as GroupLease
from schema_dist.errors import AwayError, LeaseError
from schema_dist.limits import LEASE_S_MAX

_POLL_S = 0.1


class Lease:
    """Taken by `take`, kept by `keep`, which ends with LeaseError when it is lost."""

    def __init__(
        self, client_settings: Mapping[str, str], topic: str, *, group: str, session_ms: int
    ) -> None:
        self._group = group
        self._session_ms = session_ms
        self._lease = GroupLease(client_settings, topic, group=group, session_ms=session_ms)
        # One thread: librdkafka's callbacks run where the consumer is polled.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    async def take(self) -> None:
        """Returns when the lease is ours. Raises LeaseError if another process has it after the
        time in which that of a killed one would have ended, AwayError if Kafka does not answer.
        """
        until = time.monotonic() + self._session_ms / 1000 + _POLL_S + 1.0
        while not await self._poll():
            if time.monotonic() > until:
                members = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._lease.members
                )
                if len(members) > 1:
                    raise LeaseError(
                        f"another process distributes the schemas of this primary (group"
                        f" {self._group}, members {', '.join(members)})"
                    )
                if time.monotonic() > until + LEASE_S_MAX:
                    raise AwayError(f"the lease (group {self._group}) was not given in time")

    async def keep(self) -> None:
        """Never returns. Raises LeaseError when the lease is lost."""
        while await self._poll():
            pass
        raise LeaseError(f"the lease (group {self._group}) is lost: this process was too slow")

    async def release(self) -> None:
        """Gives it up; safe to call at any time, once."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._lease.release)
        self._thread.shutdown(wait=False)

    async def _poll(self) -> bool:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._lease.poll, _POLL_S
        )
