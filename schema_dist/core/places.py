"""Places by a key: the versions under an id, or those that refer to a version."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from schema_dist.core.model import SubjectVersion

K = TypeVar("K", bound=Hashable)


class PlacesBy(Generic[K]):
    """Most keys have a single place. A set for each key would take more memory than everything
    else.
    """

    def __init__(self) -> None:
        self._single: dict[K, SubjectVersion] = {}
        self._several: dict[K, set[SubjectVersion]] = {}

    def add(self, key: K, place: SubjectVersion) -> None:
        if key in self._several:
            self._several[key].add(place)
        elif self._single.setdefault(key, place) != place:
            self._several[key] = {self._single.pop(key), place}

    def discard(self, key: K, place: SubjectVersion) -> None:
        several = self._several.get(key)
        if several is None:
            if self._single.get(key) == place:
                del self._single[key]
            return
        several.discard(place)
        if len(several) == 1:
            del self._several[key]
            self._single[key] = several.pop()

    def get(self, key: K) -> Collection[SubjectVersion]:
        """The places of a key, in no order."""
        if key in self._single:
            return (self._single[key],)
        return self._several.get(key, ())
