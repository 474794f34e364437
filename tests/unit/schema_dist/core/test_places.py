"""Places by a key, whether it has one, several or none."""

from __future__ import annotations

from schema_dist.core.model import Version
from schema_dist.core.places import PlacesBy

A, B, C = (("a-value", Version(1)), ("b-value", Version(1)), ("c-value", Version(1)))


def test_places_of_a_key_come_and_go() -> None:
    found = PlacesBy[int]()
    for place in (A, A, B):
        found.add(1, place)
    assert set(found.get(1)) == {A, B}
    found.discard(1, B)
    found.discard(1, B)
    assert list(found.get(1)) == [A]
    found.discard(1, A)
    assert not found.get(1)
    assert not found.get(2)


def test_each_of_several_places_goes_alone() -> None:
    found = PlacesBy[int]()
    for place in (A, B, C):
        found.add(1, place)
    found.discard(1, B)
    assert set(found.get(1)) == {A, C}


def test_a_single_place_takes_no_set() -> None:
    """Of 200,000 versions nearly every id has one."""
    found = PlacesBy[int]()
    for place in (A, A, B):
        found.add(1, place)
    found.discard(1, A)
    found.add(2, A)
    assert found._several == {}
