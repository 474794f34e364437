"""The owners of keys among the members of one window, as places in the list of its members.

A key goes to a member that is not silent, if one accepts it (silence.py). Otherwise it waits for
the silent member that the ring names.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core.model import Key
from dispatcher.core.records.loads import Loads
from dispatcher.core.routing.ring import NOBODY, Router
from dispatcher.core.routing.silence import Attention


class Owners:
    def __init__(self, bounded_load: float | None) -> None:
        self.router = Router(())  # of all members
        self.takers = self.router  # of members that are not silent
        self.places: list[int] = []  # of these among all
        self.loads = None if bounded_load is None else Loads(bounded_load)

    def choose(self, router: Router, attentions: Sequence[Attention]) -> None:
        """Among the members of `router`; `attentions` are theirs."""
        self.router = router
        self.places = [at for at, attention in enumerate(attentions) if not attention.silent]
        if len(self.places) == len(router.members):
            self.takers = router
        else:
            self.takers = Router(tuple([router.members[at] for at in self.places]))

    def owner_of(self, key: Key, offset: int) -> int:
        """NOBODY: nobody is there, or nobody's filters accept the record. With bounded loads it
        counts the key.
        """
        if self.loads is None or key is None:
            return self.ring_owner(key, offset)
        place = self.loads.place(self.takers, key)
        return self.places[place] if place >= 0 else self._silent_owner(key, offset)

    def ring_owner(self, key: Key, offset: int) -> int:
        """As `owner_of`, without bounded loads."""
        place = int(self.takers.owner_of(key, offset))
        return self.places[place] if place >= 0 else self._silent_owner(key, offset)

    def _silent_owner(self, key: Key, offset: int) -> int:
        """The silent member that owns a record which no other member accepts; NOBODY if no member
        is silent.
        """
        return NOBODY if self.takers is self.router else int(self.router.owner_of(key, offset))
