"""The next fetch: its places, its lane (one of a broker's connections), and its longest wait.

A place is a position of a source that is to be read. It is in at most one fetch at a time. A place
that may be behind goes out at once, with no waiting, on any free lane. At the end of the log a
place is *quiet* when nothing has come for QUIET_MS. The first lane polls the quiet places, all
together and long: partitions without writers cost nothing. The other lanes poll the rest, all in
one fetch. A place that comes while that fetch is out polls on another lane, but not for long: the
polls of these lanes are made to end at the same time, and go on as one.

A poll that has brought records is followed by a short rest, unless somebody waits for more: a
producer of many small batches would otherwise have a fetch for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.core.cluster.topology import PartitionInfo, TopicPartition, Topology
from gateway.core.limits import (
    BUSY_POLL_MS,
    FETCH_BYTES_MAX,
    JOIN_MS,
    LAST_POLL_MS,
    LONG_POLL_MS,
    QUIET_MS,
    REST_MS,
    RETRY_BASE_MS,
    RETRY_MAX_MS,
    SHORT_POLL_MS,
)
from gateway.core.reading.cache import Source

QUIET_LANE = 0
NO_POLL = -1


class FetchPosition(NamedTuple):
    """`epoch`: of the leader that wrote the record before, as far as its reader knows; -1 = not
    known. Kafka compares it with its log.
    """

    source: Source
    position: int
    epoch: int = -1


@dataclass(slots=True)
class ReadResult:
    """Everything consumers may see of [start, end): offsets ascending, keys equally long.

    With `error` (a Kafka error code) start == end, but for MESSAGE_TOO_LARGE: the batch that ends
    at `end` is too large when decompressed, and is asked for again. OFFSET_OUT_OF_RANGE: the log
    runs from `log_start` to `high_watermark`; or, with `diverged_at`, it is another one from there
    on than the one that was read, and `epoch` is that of the last record before.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: the topic is gone. TOPIC_AUTHORIZATION_FAILED: the
    gateway's own identity may not read it.
    """

    start: int
    end: int
    offsets: list[int]
    keys: list[bytes | None]
    log_start: int  # -1 = not known
    high_watermark: int  # the last stable offset under read_committed; -1 = not known
    error: int = 0
    epoch: int = -1  # of the leader that wrote these records; -1 = not known
    diverged_at: int = -1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing can be read at a position. `end`: behind a batch that is too large when
    decompressed, which a group may give up; -1: any other reason.
    """

    reason: str
    end: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """One Fetch request: at most one place per partition, all of one isolation level."""

    isolation: int
    max_wait_ms: int
    places: tuple[FetchPosition, ...]
    bytes_max: int = FETCH_BYTES_MAX  # a broker sends at least one batch, however large it is


@dataclass(slots=True)
class _Want:
    place: FetchPosition
    at_end: bool  # of the log, as far as is known: it may wait
    turn: int  # the lowest goes first; a place keeps its turn until it was served
    since_ms: int = -1  # when it was first fetched; -1 = not yet
    ready_at_ms: int = 0
    failures: int = 0  # in a row
    failing_since_ms: int = 0
    fetching: bool = False
    dropped: bool = False  # while it was being fetched


LeaderOf = Callable[[TopicPartition], int | None]


class FetchSchedule:
    def __init__(self, lanes: int) -> None:
        """`lanes`: of each broker; at least 2."""
        self._lanes = lanes
        self._wants: dict[FetchPosition, _Want] = {}
        self._idle: dict[FetchPosition, _Want] = {}  # wants not being fetched, oldest first
        # By broker: lanes that fetch, and the time at which their polls end, ms; or NO_POLL.
        self._out: dict[int, dict[int, int]] = {}
        self._rests_until_ms: dict[int, int] = {}  # by broker
        self._turn = 0

    def want(self, place: FetchPosition, *, at_end: bool, rests_with: int | None = None) -> None:
        """`rests_with`: the broker that is to be polled after its rest; None: somebody waits for
        the records, so the place does not rest.
        """
        known = self._wants.get(place)
        if known is None:
            self._turn += 1
            known = self._wants[place] = _Want(place, at_end, self._turn)
            self._idle[place] = known
            if at_end and rests_with is not None:
                known.ready_at_ms = self._rests_until_ms.get(rests_with, 0)
        elif rests_with is None:
            self.hasten(place)
        known.dropped = False

    def rest(self, broker: int, now_ms: int) -> None:
        """A poll there has brought records: what is wanted at the ends of its logs rests."""
        self._rests_until_ms[broker] = now_ms + REST_MS

    def hasten(self, place: FetchPosition) -> None:
        """Somebody waits for its records: it rests no more."""
        want = self._wants.get(place)
        if want is not None and want.failures == 0:
            want.ready_at_ms = 0

    def drop(self, place: FetchPosition) -> None:
        """Nobody wants records from this place any more. A fetch that is under way for it goes
        on.
        """
        want = self._wants.get(place)
        if want is None:
            return
        if want.fetching:
            want.dropped = True
        else:
            del self._wants[place], self._idle[place]

    def next_fetch(self, broker: int, lane: int, leader_of: LeaderOf, now_ms: int) -> Fetch | None:
        """Marks the lane busy and the places as being fetched; None = nothing for this lane now."""
        ready = [
            want
            for want in self._idle.values()
            if want.ready_at_ms <= now_ms and leader_of(want.place.source.tp) == broker
        ]
        out = self._out.setdefault(broker, {})
        chosen = [want for want in ready if not want.at_end]
        max_wait_ms = 0
        if not chosen:
            max_wait_ms = self._poll_ms(out, lane, now_ms)
            if max_wait_ms == 0:
                return None
            chosen = [want for want in ready if _may_poll(want, out, lane, now_ms)]
        places = self._take(chosen, now_ms)
        if not places:
            return None
        out[lane] = now_ms + max_wait_ms if max_wait_ms else NO_POLL
        return Fetch(places[0].source.isolation, max_wait_ms, tuple(places))

    def _poll_ms(self, out: dict[int, int], lane: int, now_ms: int) -> int:
        """0: another lane's poll ends now; that lane takes all places."""
        if lane == QUIET_LANE:
            return LONG_POLL_MS
        others = [end for other, end in out.items() if other != QUIET_LANE]
        polls = [end for end in others if end != NO_POLL]
        if not polls:
            return BUSY_POLL_MS
        left_ms = min(polls) - now_ms
        if abs(left_ms) <= JOIN_MS:
            return 0
        most_ms = SHORT_POLL_MS if len(others) < self._lanes - 2 else LAST_POLL_MS
        return min(left_ms, most_ms) if left_ms > 0 else most_ms

    def _take(self, chosen: list[_Want], now_ms: int) -> list[FetchPosition]:
        """The longest unserved first: a response that is full leaves out the last ones."""
        chosen.sort(key=_turn)
        partitions: set[TopicPartition] = set()
        places: list[FetchPosition] = []
        for want in chosen:
            source = want.place.source
            if source.tp in partitions or (
                places and places[0].source.isolation != source.isolation
            ):
                continue
            partitions.add(source.tp)
            places.append(want.place)
            want.fetching = True
            if want.since_ms < 0:
                want.since_ms = now_ms
            del self._idle[want.place]
        return places

    def lane_free(self, broker: int, lane: int) -> None:
        del self._out[broker][lane]

    def read(self, place: FetchPosition) -> None:
        """The fetch brought something, or the final word was said: the place is done with."""
        del self._wants[place]
        self._idle.pop(place, None)

    def empty(self, place: FetchPosition, *, at_end: bool) -> None:
        """The fetch brought nothing. It is tried again, first in its next fetch, unless nobody
        wants it now.
        """
        want = self._wants[place]
        want.fetching = False
        want.failures = 0
        want.at_end = at_end
        if want.dropped:
            del self._wants[place]
            return
        if at_end:
            self._turn += 1
            want.turn = self._turn
        self._idle[place] = want

    def failed(self, place: FetchPosition, now_ms: int) -> int:
        """The fetch failed. It is tried again after a pause; returns the pause in ms."""
        want = self._wants[place]
        if want.failures == 0:
            want.failing_since_ms = now_ms
        want.failures += 1
        want.at_end = False
        if want.fetching:
            want.fetching = False
            if want.dropped:
                del self._wants[place]
                return 0
            self._idle[place] = want
        pause_ms = min(RETRY_MAX_MS, RETRY_BASE_MS << min(want.failures - 1, 8))
        want.ready_at_ms = now_ms + pause_ms
        return pause_ms

    def failing_ms(self, place: FetchPosition, now_ms: int) -> int:
        """How long every fetch from the place has failed; 0 = the last one did not."""
        want = self._wants.get(place)
        return now_ms - want.failing_since_ms if want is not None and want.failures else 0

    def unplaced(self, leader_of: LeaderOf, now_ms: int) -> list[FetchPosition]:
        """Places that no broker leads now and whose pause is over."""
        return [
            place
            for place, want in self._idle.items()
            if want.ready_at_ms <= now_ms and leader_of(place.source.tp) is None
        ]

    def hurry(self) -> None:
        """The topology changed: places that failed may work now."""
        for want in self._idle.values():
            want.ready_at_ms = 0

    def check_invariants(self) -> None:
        """Recounts the figures that are kept for speed. For tests."""
        assert self._idle.keys() == {p for p, want in self._wants.items() if not want.fetching}
        assert not any(want.dropped for want in self._idle.values())


def _may_poll(want: _Want, out: dict[int, int], lane: int, now_ms: int) -> bool:
    quiet = want.since_ms >= 0 and now_ms - want.since_ms >= QUIET_MS
    return quiet if lane == QUIET_LANE else not quiet or QUIET_LANE in out


def _turn(want: _Want) -> int:
    return want.turn


def shown_of(topology: Topology, tp: TopicPartition) -> PartitionInfo | None:
    """None = unknown topic, or another topic of that name."""
    topic = topology.topics.get(tp.topic)
    if topic is None or topic.topic_id != tp.topic_id:
        return None
    return topic.partitions.get(tp.partition)


def leader_of(topology: Topology, tp: TopicPartition) -> int | None:
    """The live broker that leads `tp`; None = unknown topic, another topic of that name, or no
    leader now.
    """
    info = shown_of(topology, tp)
    return None if info is None or info.leader not in topology.brokers else info.leader
