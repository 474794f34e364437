"""The members of share groups whose requests a connection carried."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gateway.core.share.membership import ShareMember


@dataclass(slots=True)
class Carried:
    """Members by connection: a lost connection concerns only the members whose requests it carried,
    however many groups there are.
    """

    _members: dict[int, set[tuple[str, str]]] = field(default_factory=dict)  # group, member id
    _touched: set[tuple[str, str]] | None = None  # None: nobody takes them
    _principals: dict[tuple[str, str], str] = field(default_factory=dict)  # of members
    _counts: Counter[str] = field(default_factory=Counter)  # of members, by principal

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def of(self, connection: int) -> list[tuple[str, str]]:
        """Group and member id of the members whose requests it carried."""
        return list(self._members.get(connection, ()))

    def add(self, connection: int, group: str, member_id: str) -> None:
        members = self._members.setdefault(connection, set())
        if (group, member_id) not in members:
            members.add((group, member_id))
            self._touch((group, member_id))

    def take_touched(self) -> set[tuple[str, str]]:
        """The members whose connections have changed since the last call. The first call begins to
        note them.
        """
        touched, self._touched = self._touched, set()
        return touched or set()

    def _touch(self, *members: tuple[str, str]) -> None:
        if self._touched is not None:
            self._touched.update(members)

    def count(self, connection: int) -> int:
        return len(self._members.get(connection, ()))

    def beats(self, group: str, member_id: str, principal: str | None) -> None:
        """A heartbeat. The member counts for the first principal that sends one."""
        if principal is not None and (group, member_id) not in self._principals:
            self._principals[group, member_id] = principal
            self._counts[principal] += 1

    def count_of(self, principal: str) -> int:
        """Its members, of all groups."""
        return self._counts[principal]

    def lost(self, connection: int) -> list[tuple[str, str]]:
        members = self._members.pop(connection, set())
        self._touch(*members)
        return sorted(members)

    def forget(self, group: str, member: ShareMember) -> None:
        """The member left or was evicted; its connections may go on for others."""
        self._touch((group, member.member_id))
        principal = self._principals.pop((group, member.member_id), None)
        if principal is not None:
            self._counts[principal] -= 1
            if not self._counts[principal]:
                del self._counts[principal]
        for connection in member.connections:
            members = self._members.get(connection)
            if members is not None:
                members.discard((group, member.member_id))
                if not members:
                    del self._members[connection]
