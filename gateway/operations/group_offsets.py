"""Positions of the node's Key-Shared groups: read, set and deleted by hand.

A group need not be in memory: its windows are also found in the store, and, when the store was
lost, in the offsets it has committed to Kafka. Their metadata tells them from other groups'
commits.

A position is set while the group has no members. It is committed to Kafka first (Kafka refuses it
for a group of another kind that is in use), then written to the store under a new fence; the next
load of the window starts there. The commit has that fence as its origin, so it counts from then on,
also against the store (dispatcher/core/stored/reconcile.py), and after a crash between the two,
which leaves the caller with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import (
    Claimed,
    Counts,
    Fence,
    FencedError,
    StoreError,
    WindowKey,
    WindowStore,
)
from gateway.core.cluster.topology import (
    Topic,
    TopicPartition,
    Topology,
)
from gateway.core.share.errors import GroupError
from gateway.core.share.membership import ShareGroup
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.members.begun_topics import BegunTopics
from gateway.members.coordination import Coordination, EveryGroup, NotCoordinator
from gateway.members.groups import Groups
from gateway.members.redis_table import TableUnavailable
from gateway.operations.errors import (
    GroupInUse,
    GroupUnknown,
    NotCoordinated,
    StateUnavailable,
)
from gateway.operations.limits import (
    CLAIMS_MAX,
    LOGGED_PLACES_MAX,
    NOT_KEY_SHARED_GROUPS_MAX,
    RECOGNISED_AT_ONCE,
)
from gateway.upstream.cluster import LATEST
from gateway.upstream.commits import Commit, Committed
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import names_by_id
from gateway.windows.committing import Committer
from gateway.windows.loading import unstored_fence
from gateway.windows.start_position import isolation_of
from gateway.windows.table import WindowTable
from gateway.windows.window_keys import topic_id_bytes, topic_id_text
from keyway.commit_metadata.core.metadata import decode as decode_commit
from keyway.commit_metadata.core.metadata import encode as encode_commit

log = structlog.get_logger("keyway.admin")

Partition = tuple[str, int]  # topic, partition


class UpstreamView(Protocol):
    """gateway.upstream.cluster.Upstream"""

    @property
    def topology(self) -> Topology: ...
    async def refresh(self, topics: Iterable[str] = ()) -> Topology: ...
    async def look_up(self, names: Iterable[str]) -> dict[str, Topic]: ...
    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,
    ) -> Message: ...
    async def coordinator(self, group: str) -> int: ...
    async def list_offsets(
        self, topic: str, partitions: Iterable[int], timestamp: int, isolation: int = ...
    ) -> dict[int, int]: ...


class OffsetCommits(Protocol):
    """gateway.upstream.commits.Commits"""

    async def fetch_all(self, group: str) -> dict[Partition, Committed]: ...
    async def commit(self, group: str, commits: Sequence[Commit]) -> list[int]: ...


class SavedMemberRows(Protocol):
    """gateway.members.saved_members.SavedMembers"""

    async def forget(self, name: str) -> None: ...


class FilterRules(Protocol):
    """gateway.members.key_filters.KeyFilters"""

    async def remove(self, group: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Position:
    """`settled`: offsets behind `offset` that are settled, as far as is known without loading."""

    offset: int
    settled: int = 0


@dataclass(slots=True)
class GroupOffsets:
    upstream: UpstreamView
    store: WindowStore
    commits: OffsetCommits
    groups: Groups
    windows: WindowTable
    committer: Committer
    saved_members: SavedMemberRows
    filters: FilterRules
    owner: str
    coordination: Coordination = field(default_factory=EveryGroup)
    _not_key_shared: set[str] = field(default_factory=set)  # groups that commit, and are not ours

    @property
    def begun_topics(self) -> BegunTopics:
        return self.windows.dependencies.begun_topics

    # --------------------------------------------------------------------------------- known groups

    async def find(self, name: str) -> ShareGroup | None:
        """The group, also one that only the store or Kafka remembers. Raises StateUnavailable."""
        known = self.groups.get(name)
        if known is not None or not name:
            return known
        remembered = await self.stored(name)
        if not remembered and not await self.committed(name, ours_only=True):
            return None
        log.info("group_remembered", group=name)
        return self.groups.ensure(name)

    async def require(self, name: str) -> ShareGroup:
        """As `find`, for a group that has to exist. Raises GroupUnknown, StateUnavailable."""
        found = await self.find(name)
        if found is None:
            raise GroupUnknown(f"no group {name!r}")
        return found

    async def recognise(self, names: Iterable[str]) -> None:
        """Takes in those of `names` that are Key-Shared groups by the offsets they committed."""
        known = self._not_key_shared
        unknown = [name for name in names if self.groups.get(name) is None and name not in known]
        for at in range(0, len(unknown), RECOGNISED_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for name in unknown[at : at + RECOGNISED_AT_ONCE]:
                    tasks.create_task(self._recognise(name))

    async def _recognise(self, name: str) -> None:
        try:
            ours = await self.committed(name, ours_only=True)
        except StateUnavailable as away:
            log.info("group_not_recognised", group=name, reason=str(away))
            return
        if ours:
            log.info("group_remembered", group=name)
            self.groups.ensure(name)
        elif len(self._not_key_shared) < NOT_KEY_SHARED_GROUPS_MAX:
            # A group that becomes ours later is known by its first member.
            self._not_key_shared.add(name)

    async def positions(self, name: str) -> dict[Partition, Position]:
        """The group's positions, in every partition where it has one. Raises StateUnavailable."""
        ours_only = self.groups.get(name) is None
        committed = await self.committed(name, ours_only=ours_only)
        found = dict(committed)
        stored = await self.stored(name)
        topics = await self.topics_by_id({key.topic_id for key in stored})
        counts = await self.counts(stored, ())
        for key, cursor in stored.items():
            topic = topics.get(key.topic_id)
            count = counts[key]
            if topic is not None:
                same = count is not None and count.cursor == cursor
                settled = count.settled if same and count is not None else 0
                found[topic.name, key.partition] = Position(cursor, settled)
        for window in self.windows.of_group(name):
            core = window.dispatcher
            if core is not None:
                place = (window.partition.topic, window.partition.partition)
                found[place] = Position(core.cursor, core.settled_count())
        return found

    async def log_ends(self, name: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Up to where members of the group could read; {} when upstream does not say."""
        isolation = isolation_of(self.windows.dependencies.settings.of(name))
        try:
            return await self.upstream.list_offsets(topic, partitions, LATEST, isolation)
        except UpstreamError as error:
            log.info("log_end_not_known", topic=topic, reason=str(error))
            return {}

    async def named_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Topics that a client names: asked for once, not watched. Raises StateUnavailable."""
        with _upstream_answers():
            return await self.upstream.look_up(names)

    async def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of `names` that exist now. Raises StateUnavailable."""
        names = list(names)
        known = self.upstream.topology.topics
        if any(name not in known or not known[name].partitions for name in names):
            with _upstream_answers():
                known = (await self.upstream.refresh(names)).topics
        return {name: known[name] for name in names if name in known and known[name].partitions}

    async def topics_by_id(self, ids: set[str]) -> dict[str, Topic]:
        """Topics by the text of their ids; topics that are gone are left out. Raises
        StateUnavailable.
        """
        names = dict(self.upstream.topology.names)
        unknown = [topic_id_bytes(text) for text in ids if topic_id_bytes(text) not in names]
        with _upstream_answers():
            asked = await names_by_id(self.upstream, unknown)
        names.update({topic_id: name for topic_id, name in asked.items() if name is not None})
        wanted = {names[topic_id_bytes(text)] for text in ids if topic_id_bytes(text) in names}
        found = await self.topics(sorted(wanted))
        return {
            topic_id_text(topic.topic_id): topic
            for topic in found.values()
            if topic_id_text(topic.topic_id) in ids
        }

    # ---------------------------------------------------------------------------------- set, delete

    async def set_positions(
        self, name: str, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Where the next member starts; an error per partition, NONE = durable. Creates the group
        if it does not exist. Raises GroupInUse, GroupUnknown (upstream has one of another kind),
        StateUnavailable.
        """
        if await self.find(name) is None and await self.committed(name, ours_only=False):
            raise GroupUnknown(f"Group {name} is not a share group.")
        keys = {tp: WindowKey(name, topic_id_text(tp.topic_id), tp.partition) for tp in wanted}
        chosen = set(keys.values())
        results = dict.fromkeys(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        async with self.at_rest(name, chosen.__contains__):
            claims = await self._claim(name, keys)
            now_ms = self.windows.dependencies.now_ms()
            commits = [
                Commit(
                    tp,
                    wanted[tp],
                    encode_commit(wanted[tp], [], origin=claim.next_origin, settled_ms=now_ms),
                )
                for tp, claim in claims.items()
            ]
            for tp, code in zip(claims, await self.commits.commit(name, commits), strict=True):
                results[tp] = ErrorCode(code)
                if code == 0:
                    results[tp] = await self._create(keys[tp], claims[tp], wanted[tp])
                else:
                    await self._release(keys[tp], claims[tp].fence)
        if ErrorCode.NONE in results.values():
            self.groups.ensure(name)
        shown = {
            f"{tp.topic}-{tp.partition}": f"{wanted[tp]} {error.name}"
            for tp, error in list(results.items())[:LOGGED_PLACES_MAX]
        }
        log.info("positions_set", group=name, partitions=len(results), first=shown)
        return results

    async def _claim(
        self, name: str, keys: Mapping[TopicPartition, WindowKey]
    ) -> dict[TopicPartition, Claimed]:
        """Claims the windows. Those that the store does not answer for are left out."""
        if not self.windows.dependencies.settings.of(name).reliable:
            unstored = Claimed(unstored_fence(self.windows.dependencies.now_ms()), None)
            return dict.fromkeys(keys, unstored)
        claims: dict[TopicPartition, Claimed] = {}
        for tp, key in keys.items():
            try:
                claims[tp] = await self.store.claim(key, self.owner)
            except StoreError as error:
                log.warning("position_not_stored", group=name, reason=str(error))
        return claims

    async def _release(self, key: WindowKey, fence: Fence) -> None:
        """Gives a claim back, so that nothing stays of a position that Kafka refused if there was
        none before.
        """
        try:
            await self.store.release(key, fence)
        except StoreError as error:
            log.info("claim_stays", group=key.group, reason=str(error))

    async def _create(self, key: WindowKey, claim: Claimed, offset: int) -> ErrorCode:
        if not self.windows.dependencies.settings.of(key.group).reliable:
            return ErrorCode.NONE  # the commit is all there is of the position
        fence = claim.fence
        for attempt in range(CLAIMS_MAX):
            try:
                if attempt:
                    fence = (await self.store.claim(key, self.owner)).fence
                snapshot = Snapshot(cursor=offset)
                await self.store.create(key, fence, snapshot, origin=claim.next_origin)
                self.windows.parked.position_set(key)
            except FencedError:
                continue
            except StoreError as error:
                log.warning("position_not_stored", group=key.group, reason=str(error))
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    @asynccontextmanager
    async def at_rest(self, name: str, chosen: Callable[[WindowKey], bool]) -> AsyncIterator[None]:
        """Inside the block the chosen windows are out of memory and nothing commits for them;
        members that join meanwhile get windows after it. Raises GroupInUse, NotCoordinated,
        StateUnavailable.
        """
        try:
            await self.coordination.check(name, None)
        except NotCoordinator as error:
            raise NotCoordinated(str(error)) from error
        except GroupError as error:
            raise StateUnavailable(str(error)) from error
        with self.windows.frozen(name):
            async with self.committer.committing:
                self.check_empty(name)
                for window in self.windows.of_group(name):
                    if chosen(window.key):
                        self.windows.drop(window.key)
            yield

    async def forget_windows(self, name: str, chosen: Callable[[WindowKey], bool]) -> None:
        """Deletes them from the store; the committed offsets are the caller's business. To be
        called at rest. Raises StateUnavailable.
        """
        keys = [key for key in sorted(await self.stored(name)) if chosen(key)]
        try:
            for key in keys:
                await self.store.delete(key)
        except StoreError as error:
            raise StateUnavailable(str(error)) from error
        log.info("positions_deleted", group=name, windows=len(keys))

    async def forget_group(self, name: str) -> None:
        """Deletes all the gateway knows of the group. To be called at rest. Raises
        StateUnavailable.
        """
        try:
            # First: without the windows, a number that stays would have partitions read whole.
            await self.begun_topics.delete(name)
            await self.forget_windows(name, lambda _: True)
            await self.filters.remove(name)
            await self.forget_members(name)
        except TableUnavailable as error:
            raise StateUnavailable(f"Redis: {error}") from error
        log.info("group_deleted", group=name)

    async def forget_members(self, name: str) -> None:
        """Who joins meanwhile is a member of a new group of that name. Raises TableUnavailable."""
        group = self.groups.get(name)
        if group is not None and not group.members:
            self.groups.forget(name)
            await self.saved_members.forget(name)

    async def begin_anew(self, name: str, topics: Iterable[Topic]) -> None:
        """The group has no positions in them any more. Raises StateUnavailable."""
        try:
            for topic in topics:
                topic_id = topic_id_text(topic.topic_id)
                await self.begun_topics.begin_anew(name, topic_id, max(topic.partitions) + 1)
        except TableUnavailable as error:
            raise StateUnavailable(f"Redis: {error}") from error

    def check_empty(self, name: str) -> None:
        """Raises GroupInUse."""
        group = self.groups.get(name)
        if group is not None and group.members:
            raise GroupInUse(f"Group {name} is not empty: it has {len(group.members)} members.")

    # --------------------------------------------------------------------------------------- inside

    async def stored(self, name: str) -> dict[WindowKey, int]:
        """The cursors of the group's windows in the store. Raises StateUnavailable."""
        try:
            return await self.store.positions(name)
        except StoreError as error:
            raise StateUnavailable(str(error)) from error

    async def counts(
        self, keys: Iterable[WindowKey], up: Collection[WindowKey]
    ) -> dict[WindowKey, Counts | None]:
        """The counts of the windows in the store. None: the window is `up`. Raises
        StateUnavailable.
        """
        counts: dict[WindowKey, Counts | None] = dict.fromkeys(keys)
        down = [key for key in counts if key not in up]
        try:
            counts.update(zip(down, await self.store.counts(down), strict=True))
        except StoreError as error:
            raise StateUnavailable(str(error)) from error
        return counts

    async def committed(self, name: str, *, ours_only: bool) -> dict[Partition, Position]:
        with _upstream_answers():
            committed = await self.commits.fetch_all(name)
        found: dict[Partition, Position] = {}
        for place, commit in committed.items():
            settled = decode_commit(commit.offset, commit.metadata)
            if settled is not None or not ours_only:
                found[place] = Position(commit.offset, _count(settled or []))
        return found


def _count(ranges: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


@contextmanager
def _upstream_answers() -> Iterator[None]:
    """Raises StateUnavailable for its failures inside."""
    try:
        yield
    except UpstreamError as error:
        raise StateUnavailable(f"upstream: {error}") from error
