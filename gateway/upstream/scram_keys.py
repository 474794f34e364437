"""The keys of SCRAM, derived once for each password and salt, and never in the event loop."""

from __future__ import annotations

import asyncio

from gateway.core.cluster.scram import KeySource, ScramKeys
from gateway.upstream.limits import SCRAM_KEYS_AT_ONCE, SCRAM_KEYS_MAX


class ScramKeyring:
    def __init__(self) -> None:
        self._known: dict[KeySource, ScramKeys] = {}  # the one used last is the last one
        self._free = asyncio.Semaphore(SCRAM_KEYS_AT_ONCE)

    async def keys(self, source: KeySource) -> ScramKeys:
        if source not in self._known:
            async with self._free:
                if source not in self._known:  # else it was derived meanwhile, for another client
                    self._known[source] = await asyncio.to_thread(source.keys)
        found = self._known[source] = self._known.pop(source)
        if len(self._known) > SCRAM_KEYS_MAX:
            del self._known[next(iter(self._known))]
        return found
