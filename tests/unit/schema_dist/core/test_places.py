"""Places by a key, whether it has one, several or none."""

from __future__ import annotations

from schema_dist.core.model import Version
from schema_dist.core.places import PlacesBy

A, B = ("a-value", Version(1)), ("b-value", Version(1))


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
