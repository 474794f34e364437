"""Coordinators whose address has changed, for clients that keep the old one.

librdkafka (2.16: rd_kafka_cgrp_coord_update, rd_kafka_txn_coord_set) knows a coordinator by its id.
While FindCoordinator names the same id, it goes on at the address that it had: its members send no
heartbeat to the new one until they are evicted, and its transactions wait for the old one. An error
in place of the answer makes it forget both. Every client asks again after that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class _Move(NamedTuple):
    number: int
    at_s: float


class MovedCoordinators:
    """`kept_s`: so long after a move there may be clients that have not noticed yet. Times are of a
    monotonic clock.
    """

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._known: dict[int, object] | None = None  # the last address of each
        self._moves: dict[int, _Move] = {}
        self._count = 0
        self._told: dict[int, dict[int, int]] = {}  # by connection: the last move of each broker

    def look(self, addresses: Mapping[int, object], now_s: float) -> None:
        """The virtual brokers are at these addresses now. What is there at the first look may have
        moved before it: somebody else was at work.
        """
        for broker, address in addresses.items():
            if self._known is None or self._known.get(broker, address) != address:
                self._count += 1
                self._moves[broker] = _Move(self._count, now_s)
        self._known = {**(self._known or {}), **addresses}

    def forgotten(self, connection: int, brokers: Iterable[int], now_s: float) -> frozenset[int]:
        """Those that the client of this connection is to forget: each once after a move."""
        told = self._told.get(connection, {})
        found = {
            broker: move.number
            for broker in brokers
            if (move := self._moves.get(broker)) is not None
            and now_s - move.at_s < self._kept_s
            and told.get(broker, 0) < move.number
        }
        if found:
            self._told[connection] = {**told, **found}
        return frozenset(found)

    def closed(self, connection: int) -> None:
        self._told.pop(connection, None)
