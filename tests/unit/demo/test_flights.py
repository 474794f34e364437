"""The data set as the demo sends it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from demo.flights import Flight, per_carrier, read_flights

COUNT = 3_000


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """The first of the year."""
    return read_flights(flights_max=COUNT)


@pytest.mark.deep
def test_every_flight_of_the_year(flights: list[Flight]) -> None:
    every = read_flights()
    assert len(every) == 336_776
    assert every[:COUNT] == flights
    assert all(one.departure <= two.departure for one, two in pairwise(every))
    assert sum(flight.key is None for flight in every) == 2_512
    assert len({flight.key for flight in every if flight.key}) == 4_043
    counts = per_carrier(every)
    assert (counts["UA"], counts["OO"]) == (58_665, 32)


def test_departure_order(flights: list[Flight]) -> None:
    assert all(one.departure <= two.departure for one, two in pairwise(flights))
    assert flights[0].departure == ("2013-01-01T10:00:00Z", 15)


def test_value_is_the_row_with_types(flights: list[Flight]) -> None:
    first = json.loads(flights[0].value)
    assert (first["carrier"], first["tailnum"], first["dep_time"]) == ("UA", "N14228", 517)
    without = next(flight for flight in flights if flight.key is None)
    assert json.loads(without.value)["tailnum"] is None
    assert b"NA" not in {flight.key for flight in flights}


def test_per_carrier_counts_every_flight_once(flights: list[Flight]) -> None:
    counts = per_carrier(flights)
    assert sum(counts.values()) == COUNT
    assert counts["UA"] > counts["B6"] > 0
    assert list(counts) == sorted(counts)
