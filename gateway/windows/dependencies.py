"""The surroundings of a window, as protocols where the real ones reach upstream."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from dispatcher.core.hold import Hold
from dispatcher.core.steps import Noticed, WriteDeadLetters
from dispatcher.store.base import StoreError, WindowKey, WindowStore
from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.reading.cache import EPOCH_MAX, Source
from gateway.core.reading.fetching import ReadResult, Unreadable
from gateway.core.share.dead_letter_queue import DeadLetterQueue
from gateway.core.wire.long_bytes import LongBytes
from gateway.group_log import GroupLog
from gateway.members.begun_topics import BegunTopics
from gateway.members.group_settings import GroupSettings
from gateway.routing.owners import Alone, Owners
from gateway.upstream.commits import Commit, Committed
from gateway.upstream.errors import Refused
from gateway.upstream.requests import Calls
from gateway.windows.limits import LOAD_SLOW_S, LOADED_AT_ONCE
from gateway.windows.ready_signals import ReadySignals
from gateway.windows.turns import Turns
from gateway.windows.watched_topics import TopicsView


class LogReader(Protocol):
    """gateway/reading/reader.py."""

    def read_on(
        self,
        source: Source,
        position: int,
        offsets_max: int,
        sink: Callable[[ReadResult], None],
        epoch: int,
        *,
        awaited: bool,
    ) -> None:
        """Reads one result for `sink`, later. Replaces the sink's earlier wish. `epoch`: of the
        record before `position`. `awaited`: at once.
        """

    def hasten(self, source: Source, sink: Callable[[ReadResult], None]) -> None: ...

    def stop(self, source: Source, sink: Callable[[ReadResult], None]) -> None: ...

    def forget_below(
        self, source: Source, offset: int, sink: Callable[[ReadResult], None]
    ) -> None: ...


class Records(Protocol):
    """gateway/reading/read_records.py."""

    def mean_record_bytes(self, source: Source) -> int: ...

    async def bytes_for(
        self,
        source: Source,
        offsets: list[int],
        records_max: int,
        bytes_max: int,
        epoch_max: int = EPOCH_MAX,
    ) -> bytes | LongBytes:
        """Raises RecordsGone, RecordsLarge, RecordsReplaced, UpstreamError."""
        ...


class Unreadables(Protocol):
    """gateway/reading/failing_reads.py."""

    def unreadable(self, source: Source, position: int) -> Unreadable | None: ...

    def failing_partitions(self) -> int: ...


class CommittedOffsets(Protocol):
    """gateway/upstream/commits.py."""

    @property
    def metadata_chars_max(self) -> int: ...

    @property
    def repeat_ms(self) -> int: ...

    async def fetch(self, group: str, tp: TopicPartition) -> Committed | None:
        """Raises UpstreamError."""
        ...

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int | None]:
        """None: Kafka names none at the moment."""
        ...

    async def fetch_some(
        self, group: str, partitions: Sequence[TopicPartition], *, attempts_max: int = ...
    ) -> dict[TopicPartition, Committed | Refused | None]:
        """The committed offsets of some partitions, in one request. Raises UpstreamError."""
        ...

    async def commit(
        self, group: str, commits: Sequence[Commit], *, attempts_max: int = ...
    ) -> list[int]:
        """Returns one Kafka error code for each commit; never raises for the upstream's
        failures.
        """
        ...


class DeadLetterWriter(Protocol):
    """gateway/reading/dead_letters.py."""

    async def write_offsets(
        self,
        group: str,
        source: Source,
        topic: str,
        effect: WriteDeadLetters,
        queue: DeadLetterQueue | None = None,
    ) -> Sequence[bool | None]: ...

    def trouble(self, origin: str, topic: str) -> str | None: ...


class OffsetsByTime(Protocol):
    """What windows need of gateway/upstream/cluster.py to find offsets by time."""

    async def list_offset(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:
        """-1: no record so late. Raises UpstreamError."""
        ...


class UpstreamView(OffsetsByTime, TopicsView, Calls, Protocol):
    """gateway/upstream/cluster.py."""

    @property
    def topology(self) -> Topology: ...
    def request_refresh(self) -> None: ...


def no_hold(_: WindowKey) -> Hold | None:
    return None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts that all windows of the node share."""

    store: WindowStore
    reader: LogReader
    records: Records
    unreadables: Unreadables
    commits: CommittedOffsets
    upstream: UpstreamView
    dead_letters: DeadLetterWriter
    settings: GroupSettings
    begun_topics: BegunTopics
    owner: str
    now_ms: Callable[[], int]
    ready: ReadySignals
    noticed: Callable[[str, TopicPartition, Noticed], None]  # the group comes first
    log: GroupLog
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    owners: Owners = field(default_factory=Alone)  # of virtual brokers
    hold_of: Callable[[WindowKey], Hold | None] = no_hold  # of the window, at this moment
    loads: Turns = field(default_factory=lambda: Turns(LOADED_AT_ONCE, LOAD_SLOW_S))

    async def forget_stored(self, key: WindowKey) -> None:
        """Forgets the state from the time when the group was reliable: otherwise the group would
        return to it when it is reliable again. Does not wait for a store that is away.
        """
        with suppress(StoreError):
            await self.store.delete(key)
