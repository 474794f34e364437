"""Members of share groups saved in Redis, so that a restarted node goes on with the members it had.

Two tables: a row per group, also of an empty one, and a row per member, so that a join costs the
same however many members the group has. The row of a group with key filters also names who left not
long ago: a node that starts while the only taker of some keys is away has to wait for it. So it is
written before the rows of members: who leaves is in one of the two at any moment. Rows are written
behind: a heartbeat never waits for Redis. A crash loses a join or a leave of the last moments. Such
a member rejoins on its next heartbeat, or is evicted because it does not come back.

Before 0.1.0 a group was one row with all its members (`keyway:members`). Such rows are read once,
at the start, and moved to the new tables. There is no way back: an older node starts without
members, and they join again.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from redis.asyncio import Redis

from gateway.core.share.membership import EVERYBODY, Awaited, ShareGroup, ShareMember
from gateway.members.change_log import GroupChange
from gateway.members.fenced_rows import FencedRows, GroupRows, RowChange, Writer
from gateway.members.limits import MEMBERSHIP_RETRY_MS, SAVED_DEPARTED_MAX
from gateway.members.redis_table import RedisTable, TableUnavailable, row_text

log = structlog.get_logger("keyway.groups")

_OLD_KEY = "keyway:members"
_GROUPS_KEY = "keyway:share_groups"
_MEMBERS_KEY = "keyway:share_members"


Departed = tuple[Awaited, ...]


class SavedGroup(NamedTuple):
    """`members`: in join order. `departed`: who left not long ago, and is awaited."""

    epoch: int
    members: list[ShareMember]
    departed: Departed = ()


class GroupRow(NamedTuple):
    """What is saved of a group itself."""

    epoch: int
    departed: Departed = ()


class MemberRow(NamedTuple):
    """One member as it is saved. `joined` orders the members of a group."""

    joined: int
    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None
    topics: tuple[str, ...]
    epoch: int
    previous_epoch: int


@dataclass(slots=True)
class StoredGroup:
    """The rows of one group in Redis, as far as this node knows. None: there may be one."""

    row: GroupRow | None = None
    members: dict[str, MemberRow | None] = field(default_factory=dict)


def _unfiltered(_group: str, _client_id: str) -> tuple[bytes, ...]:
    return ()


class SavedMembers:
    def __init__(
        self, redis: Redis, filters: Callable[[str, str], tuple[bytes, ...]] = _unfiltered
    ) -> None:
        """`filters`: of a group's member, by its client id."""
        self._redis = redis
        self._filters = filters
        self._fenced: FencedRows | None = None  # None: the node stands alone
        self._groups = RedisTable(redis, _GROUPS_KEY, _group_json, _group_row)
        self._members = RedisTable(redis, _MEMBERS_KEY, MemberRow._asdict, _member_row)
        self._old = RedisTable(redis, _OLD_KEY, _old_row, _old_group)
        self._stored: dict[str, StoredGroup] | None = None  # None: not read yet
        self._late = False  # the node has started without the rows
        self._on_late: list[Callable[[dict[str, SavedGroup]], None]] = []
        self._dirty: dict[str, ShareGroup | None] = {}  # None: forgotten
        self._writing: Collection[str] = ()  # groups whose rows are on their way
        self._evicted: dict[str, set[str]] = {}  # whose rows are not deleted yet
        self._wake = asyncio.Event()
        self._flushing = asyncio.Lock()

    def share(
        self,
        writer: Writer,
        led_at: Callable[[str], int | None],
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Several nodes read the rows; each writes those of the groups that it leads. `led_at`: by
        which virtual broker; None: it does not. `told`: of each entry in the log of changes.
        """
        self._fenced = FencedRows(self._redis, (_MEMBERS_KEY, _GROUPS_KEY), writer, led_at, told)

    def on_late(self, callback: Callable[[dict[str, SavedGroup]], None]) -> None:
        """`callback` gets the groups that `load` could not read, before any of them is written."""
        self._on_late.append(callback)

    def loaded(self) -> bool:
        """False while Redis has rows, perhaps, that this node has not read since it started."""
        return not self._late

    def writes(self, name: str) -> bool:
        """Rows of the group are still to be written."""
        return name in self._dirty or name in self._writing

    def changed(self, group: ShareGroup) -> None:
        self._dirty[group.name] = group
        self._wake.set()

    def evicted(self, name: str, member_ids: Iterable[str]) -> None:
        """Other nodes are told why these members are gone, with the next write."""
        self._evicted.setdefault(name, set()).update(member_ids)

    def doubted(self) -> None:
        """Redis may have lost rows: they are read again before the next change is written."""
        self._stored = None

    def forgotten(self, name: str) -> None:
        self._dirty[name] = None
        self._wake.set()

    async def load(self) -> dict[str, SavedGroup]:
        """Groups by name, as of the last write; {} when Redis has none or does not answer."""
        try:
            stored = await self._read()
        except TableUnavailable as error:
            log.warning("saved_members_not_loaded", reason=str(error))
            self._late = True
            self._wake.set()
            return {}
        return {name: _restored(group) for name, group in stored.items()}

    async def reload(self) -> dict[str, SavedGroup]:
        """Groups by name, as they are in Redis now. Raises TableUnavailable."""
        async with self._flushing:
            return {name: _restored(group) for name, group in (await self._read()).items()}

    async def reread(self, changes: Mapping[str, GroupChange]) -> dict[str, SavedGroup | None]:
        """The changed groups, as they are in Redis now; None: there is no such group. The rows of
        all groups were read before. Raises TableUnavailable.
        """
        async with self._flushing:
            stored = await self._known()
            names = [
                (name, member) for name, change in changes.items() for member in change.members
            ]
            members = await self._members.some([_field(*member_name) for member_name in names])
            rows = await self._groups.some(list(changes))
            for name in changes:
                stored.setdefault(name, StoredGroup()).row = rows.get(name)
            for name, member_id in names:
                row = members.get(_field(name, member_id))
                if row is None:
                    stored[name].members.pop(member_id, None)
                else:
                    stored[name].members[member_id] = row
            for name in changes:
                if stored[name].row is None and not stored[name].members:
                    del stored[name]
            return {name: _restored(stored[name]) if name in stored else None for name in changes}

    def superseded(self, name: str) -> None:
        """Another node saves this group from now on."""
        self._dirty.pop(name, None)
        self._evicted.pop(name, None)

    async def _known(self) -> dict[str, StoredGroup]:
        """The rows in Redis. Raises TableUnavailable."""
        stored = await self._read() if self._stored is None else self._stored
        if self._late:
            self._late = False
            for callback in self._on_late:
                callback({name: _restored(group) for name, group in stored.items()})
        return stored

    async def _read(self) -> dict[str, StoredGroup]:
        """Reads all rows. Rows of versions before 0.1.0 are moved. Raises TableUnavailable."""
        stored: dict[str, StoredGroup] = {}
        for name, group_row in (await self._groups.load()).items():
            stored[name] = StoredGroup(group_row)
        for field_name, row in (await self._members.load()).items():
            try:
                group, member_id = json.loads(field_name)
            except (ValueError, TypeError) as error:  # not from a node
                log.error("row_unreadable", table=_MEMBERS_KEY, name=field_name, reason=repr(error))
                continue
            stored.setdefault(str(group), StoredGroup()).members[str(member_id)] = row
        old = {n: group for n, group in (await self._old.load()).items() if n not in stored}
        if old:
            stored |= old
            await self._members.write(
                {
                    _field(name, row.member_id): row
                    for name, group in old.items()
                    for row in group.members.values()
                    if row is not None
                }
            )
            await self._groups.write(
                {name: group.row for name, group in old.items() if group.row is not None}
            )
            log.info("saved_members_moved", groups=len(old))
        await self._old.drop()
        self._stored = stored
        return stored

    async def write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except TableUnavailable:
                # The window store logs that Redis is away; here it only has to come back.
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)
                self._wake.set()

    async def flush(self) -> None:
        """Writes the changes. Raises TableUnavailable; then they are written next time."""
        async with self._flushing:
            stored = await self._known()
            groups, self._dirty = self._dirty, {}
            if self._fenced is not None:
                led_at = self._fenced.led_at
                groups = {n: group for n, group in groups.items() if led_at(n) is not None}
            try:
                await self._write(stored, groups)
            except BaseException:
                self._dirty = groups | self._dirty
                raise

    async def stop(self) -> None:
        try:
            await self.flush()
        except TableUnavailable as error:
            log.warning("stopped_without_saving_members", reason=str(error))

    async def forget(self, name: str) -> None:
        """The group was deleted. Raises TableUnavailable."""
        async with self._flushing:
            stored = await self._known()
            await self._write(stored, {name: None})
            if name in self._dirty and self._dirty[name] is None:  # not created again meanwhile
                del self._dirty[name]

    async def _write(
        self, stored: dict[str, StoredGroup], groups: Mapping[str, ShareGroup | None]
    ) -> None:
        """Rows that differ from the stored ones. Until Redis has answered they count as unknown,
        so that a failure writes or deletes them again.
        """
        self._writing = groups.keys()
        try:
            await self._write_changes(stored, groups)
        finally:
            self._writing = ()

    async def _write_changes(
        self, stored: dict[str, StoredGroup], groups: Mapping[str, ShareGroup | None]
    ) -> None:
        members: dict[tuple[str, str], MemberRow] = {}
        rows: dict[str, GroupRow] = {}
        gone: list[tuple[str, str]] = []
        for name, group in groups.items():
            known = stored.setdefault(name, StoredGroup())
            now = {} if group is None else {row.member_id: row for row in _rows(group, known)}
            for member_id, row in now.items():
                if known.members.get(member_id) != row:
                    members[name, member_id] = row
                    known.members[member_id] = None
            gone += [(name, member_id) for member_id in known.members if member_id not in now]
            if group is not None and known.row != (own := self._row(group)):
                rows[name] = own
                known.row = None
        dropped = [name for name, group in groups.items() if group is None]
        if self._fenced is None:
            await self._groups.write(rows)
            await self._members.write(
                {_field(*names): row for names, row in members.items()},
                (_field(*names) for names in gone),
            )
            await self._groups.write({}, dropped)
        else:
            await self._write_fenced(self._fenced, members, rows, [*gone, *dropped])
        for name, own in rows.items():
            stored[name].row = own
        for (name, member_id), row in members.items():
            stored[name].members[member_id] = row
        for name, member_id in gone:
            del stored[name].members[member_id]
        for name in dropped:
            del stored[name]

    def _row(self, group: ShareGroup) -> GroupRow:
        """Of those who left, the last one with the same filters and topics stands for all."""
        latest: dict[tuple[tuple[bytes, ...] | None, tuple[str, ...]], Awaited] = {}
        for one in group.departed:
            client_id, topics = one
            filters = None if client_id is None else self._filters(group.name, client_id)
            latest.pop((filters, topics), None)
            latest[filters, topics] = one
        there = (self._filters(group.name, each.client_id) for each in group.members.values())
        if not any(there) and not any(filters for filters, _ in latest):
            return GroupRow(group.epoch)  # all take every key
        departed = list(latest.values())
        if len(departed) > SAVED_DEPARTED_MAX:
            departed = [*departed[-SAVED_DEPARTED_MAX:], EVERYBODY]
        return GroupRow(group.epoch, tuple(departed))

    async def _write_fenced(
        self,
        fenced: FencedRows,
        members: Mapping[tuple[str, str], MemberRow],
        rows: Mapping[str, GroupRow],
        gone: Iterable[tuple[str, str] | str],
    ) -> None:
        """Raises TableUnavailable, also if the store knows another coordinator of a group: it may
        be ahead of this node by a moment, or behind after its data was lost.
        """
        changes: dict[str, GroupRows] = defaultdict(GroupRows)
        for name, own in rows.items():
            changes[name].add(RowChange("groups", name, row_text(_group_json(own))))
        for (name, member_id), row in members.items():
            text = row_text(row._asdict())
            changes[name].add(RowChange("members", _field(name, member_id), text), member_id)
        for which in gone:
            if isinstance(which, str):
                changes[which].add(RowChange("groups", which, None))
                continue
            name, member_id = which
            evicted = member_id in self._evicted.get(name, ())
            row_gone = RowChange("members", _field(name, member_id), None)
            changes[name].add(row_gone, member_id, evicted=evicted)
        refused = [name for name, some in changes.items() if not await fenced.write(name, some)]
        if refused:
            raise _led_elsewhere(refused[0])
        for name in changes:
            self._evicted.pop(name, None)


def _led_elsewhere(name: str) -> TableUnavailable:
    return TableUnavailable(f"another node coordinates group {name}: ask that one")


def _rows(group: ShareGroup, known: StoredGroup) -> Iterator[MemberRow]:
    """The members in join order. Each keeps its number unless it left and joined again."""
    joined = -1
    for member in group.members.values():
        before = known.members.get(member.member_id)
        joined = max(joined + 1, -1 if before is None else before.joined)
        yield MemberRow(
            joined=joined,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rack_id=member.rack_id,
            topics=member.topics,
            epoch=member.epoch,
            previous_epoch=member.previous_epoch,
        )


def _restored(group: StoredGroup) -> SavedGroup:
    known = (row for row in group.members.values() if row is not None)
    rows = sorted(known, key=lambda row: row.joined)
    own = group.row
    if own is None:  # it cannot be read: nobody knows who left
        own = GroupRow(max([row.epoch for row in rows], default=0), (EVERYBODY,))
    return SavedGroup(own.epoch, [_member(row) for row in rows], own.departed)


def _member(row: MemberRow) -> ShareMember:
    return ShareMember(
        member_id=row.member_id,
        client_id=row.client_id,
        client_host=row.client_host,
        rack_id=row.rack_id,
        topics=row.topics,
        epoch=row.epoch,
        previous_epoch=row.previous_epoch,
        assignment={},
        last_heartbeat_ms=0,
    )


def _field(group: str, member_id: str) -> str:
    """The name of a member's row: both names, so that one cannot be mistaken for another."""
    return json.dumps([group, member_id])


def _group_json(row: GroupRow) -> dict[str, Any]:
    return {"epoch": row.epoch} | ({"departed": row.departed} if row.departed else {})


def _group_row(row: Any) -> GroupRow:  # noqa: ANN401 - any JSON
    epoch = int(row["epoch"])
    departed = tuple(
        (None if client_id is None else str(client_id), tuple(sorted(map(str, topics))))
        for client_id, topics in row.get("departed", ())
    )
    return GroupRow(epoch, departed)


def _member_row(row: Any) -> MemberRow:  # noqa: ANN401 - any JSON
    return MemberRow(
        joined=int(row["joined"]),
        member_id=str(row["member_id"]),
        client_id=str(row["client_id"]),
        client_host=str(row["client_host"]),
        rack_id=row["rack_id"],
        topics=tuple(sorted(str(name) for name in row["topics"])),
        epoch=int(row["epoch"]),
        previous_epoch=int(row["previous_epoch"]),
    )


def _old_row(group: StoredGroup) -> None:
    raise AssertionError(f"rows of before 0.1.0 are read only: {group!r}")


def _old_group(row: Any) -> StoredGroup:  # noqa: ANN401 - any JSON
    """Rows of before 0.1.0: {"epoch": n, "members": [...]} in join order."""
    rows = [_member_row({**entry, "joined": at}) for at, entry in enumerate(row["members"])]
    return StoredGroup(GroupRow(int(row["epoch"])), {member.member_id: member for member in rows})
