"""The members of share groups whose requests a connection carried."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.share.membership import ShareMember


@dataclass(slots=True)
class Carried:
    """Members by connection: a lost connection concerns only the members whose requests it carried,
    however many groups there are.
    """

    _members: dict[int, set[tuple[str, str]]] = field(default_factory=dict)  # group, member id
    _touched: set[tuple[str, str]] | None = None  # None: nobody takes them

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

    def lost(self, connection: int) -> list[tuple[str, str]]:
        members = self._members.pop(connection, set())
        self._touch(*members)
        return sorted(members)

    def forget(self, group: str, member: ShareMember) -> None:
        """The member left or was evicted; its connections may go on for others."""
        self._touch((group, member.member_id))
        for connection in member.connections:
            members = self._members.get(connection)
            if members is not None:
                members.discard((group, member.member_id))
                if not members:
                    del self._members[connection]
