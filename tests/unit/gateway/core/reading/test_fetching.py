"""Places and their fetches: none waits behind the long polls of others, none starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, TopicPartition, Topology
from gateway.core.limits import (
    BUSY_POLL_MS,
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
from gateway.core.reading.fetching import (
    QUIET_LANE,
    Fetch,
    FetchPosition,
    FetchSchedule,
    leader_of,
)
from gateway.reading.limits import FETCH_LANES

TOPIC_ID = b"\7" * 16
BUSY, OTHER, LAST = range(QUIET_LANE + 1, FETCH_LANES)
NOW_MS = 1_000


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", TOPIC_ID, partition)


def place(partition: int, position: int = 0, isolation: int = 1) -> FetchPosition:
    return FetchPosition(Source(tp(partition), isolation), position)


def one_leads(_: TopicPartition) -> int:
    return 1


def next_fetch(schedule: FetchSchedule, lane: int, now_ms: int = NOW_MS) -> Fetch | None:
    fetch = schedule.next_fetch(1, lane, one_leads, now_ms)
    schedule.check_invariants()
    return fetch


def quiet(schedule: FetchSchedule, one: FetchPosition) -> None:
    """`one` was polled at the log's end and brought nothing for QUIET_MS."""
    schedule.want(one, at_end=True)
    assert next_fetch(schedule, BUSY, NOW_MS - QUIET_MS) == Fetch(1, BUSY_POLL_MS, (one,))
    schedule.empty(one, at_end=True)
    schedule.lane_free(1, BUSY)


def back(schedule: FetchSchedule, lane: int, *places: FetchPosition) -> None:
    """A poll ends that brought nothing."""
    for one in places:
        schedule.empty(one, at_end=True)
    schedule.lane_free(1, lane)


def test_what_is_behind_goes_first_and_does_not_wait() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0, 100), at_end=True)
    schedule.want(place(1), at_end=False)
    assert next_fetch(schedule, 0) == Fetch(1, 0, (place(1),))
    assert next_fetch(schedule, 1) == Fetch(1, BUSY_POLL_MS, (place(0, 100),))
    assert next_fetch(schedule, 2) is None


def test_the_long_poll_is_for_places_where_nothing_happens() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    quiet(schedule, place(0))
    schedule.want(place(1), at_end=True)
    assert next_fetch(schedule, QUIET_LANE) == Fetch(1, LONG_POLL_MS, (place(0),))
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(1),))


def test_nothing_happens_once_polls_have_brought_nothing_for_a_while() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=True)
    for now_ms in range(0, QUIET_MS, BUSY_POLL_MS):
        assert next_fetch(schedule, QUIET_LANE, now_ms) is None
        assert next_fetch(schedule, BUSY, now_ms) is not None
        back(schedule, BUSY, place(0))
    assert next_fetch(schedule, BUSY, QUIET_MS) is None
    assert next_fetch(schedule, QUIET_LANE, QUIET_MS) is not None


def test_busy_places_are_polled_in_one_fetch_and_so_is_the_one_that_was_read() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    for partition in range(4):
        schedule.want(place(partition), at_end=True)
    together = tuple(place(partition) for partition in range(4))
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, together)
    schedule.read(together[1])
    schedule.want(place(1, 1), at_end=True)
    back(schedule, BUSY, place(0), place(2), place(3))
    together = (place(1, 1), place(0), place(2), place(3))
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, together)


def test_after_a_poll_with_records_places_at_the_end_rest_unless_they_are_awaited() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.rest(1, NOW_MS)
    for partition in range(2):
        schedule.want(place(partition, 9), at_end=True, rests_with=1)
    schedule.want(place(2), at_end=False, rests_with=1)
    schedule.want(place(3, 9), at_end=True)
    assert next_fetch(schedule, OTHER) == Fetch(1, 0, (place(2),)), "it is behind"
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(3, 9),)), "it is awaited"
    assert next_fetch(schedule, LAST) is None
    schedule.hasten(place(0, 9))
    assert next_fetch(schedule, LAST) == Fetch(1, LAST_POLL_MS, (place(0, 9),))
    back(schedule, LAST, place(0, 9))
    back(schedule, BUSY, place(3, 9))
    rested = next_fetch(schedule, BUSY, NOW_MS + REST_MS)
    assert rested is not None
    assert place(1, 9) in rested.places


def test_somebody_who_waits_does_not_shorten_the_pause_after_a_failure() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0, 9), at_end=True, rests_with=1)
    assert next_fetch(schedule, BUSY) is not None
    schedule.lane_free(1, BUSY)
    pause_ms = schedule.failed(place(0, 9), NOW_MS)
    schedule.hasten(place(0, 9))
    schedule.want(place(0, 9), at_end=True)
    assert next_fetch(schedule, BUSY) is None
    assert next_fetch(schedule, BUSY, NOW_MS + pause_ms) is not None


def test_a_place_that_comes_later_is_polled_at_once_and_joins_the_others_soon() -> None:
    """It was polled for 5 ms again and again, and others waited 20 ms for a lane."""
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=True)
    assert next_fetch(schedule, BUSY, 0) == Fetch(1, BUSY_POLL_MS, (place(0),))
    schedule.want(place(1), at_end=True)
    assert next_fetch(schedule, OTHER, 10) == Fetch(1, SHORT_POLL_MS, (place(1),))
    back(schedule, BUSY, place(0))  # something came: its next poll ends with that of the other
    assert next_fetch(schedule, BUSY, 20) == Fetch(1, SHORT_POLL_MS - 10, (place(0),))
    back(schedule, BUSY, place(0))
    now_ms = 10 + SHORT_POLL_MS + 1
    assert next_fetch(schedule, BUSY, now_ms) is None, "the other lane will be back at once"
    back(schedule, OTHER, place(1))
    assert next_fetch(schedule, OTHER, now_ms) == Fetch(1, BUSY_POLL_MS, (place(0), place(1)))


def test_a_poll_that_does_not_come_back_is_not_waited_for() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=True)
    assert next_fetch(schedule, BUSY, 0) is not None
    schedule.want(place(1), at_end=True)
    late_ms = BUSY_POLL_MS + JOIN_MS
    assert next_fetch(schedule, OTHER, late_ms) is None
    assert next_fetch(schedule, OTHER, late_ms + 1) == Fetch(1, SHORT_POLL_MS, (place(1),))


def test_the_last_lane_is_back_soon() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    for lane in (BUSY, OTHER, LAST):
        schedule.want(place(lane), at_end=True)
        polled = next_fetch(schedule, lane, 0)
        assert polled is not None
    assert polled == Fetch(1, LAST_POLL_MS, (place(LAST),))


def test_quiet_places_go_with_the_busy_ones_while_the_long_poll_is_out() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    quiet(schedule, place(0))
    assert next_fetch(schedule, BUSY) is None, "the first lane is free for it"
    assert next_fetch(schedule, QUIET_LANE) is not None
    quiet(schedule, place(1))
    schedule.want(place(9), at_end=True)
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(1), place(9)))

    back(schedule, BUSY, place(1), place(9))
    back(schedule, QUIET_LANE, place(0))
    assert next_fetch(schedule, QUIET_LANE) == Fetch(1, LONG_POLL_MS, (place(1), place(0)))
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(9),))


def test_what_failed_is_asked_for_at_once_and_not_polled() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    quiet(schedule, place(0))
    assert next_fetch(schedule, QUIET_LANE) is not None
    pause_ms = schedule.failed(place(0), NOW_MS)
    assert next_fetch(schedule, BUSY, NOW_MS + pause_ms) == Fetch(1, 0, (place(0),))


def test_one_request_holds_a_partition_once_and_one_isolation_level() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    wanted = [place(0, 5), place(0, 900), place(1, 3, isolation=0), place(2)]
    for one in wanted:
        schedule.want(one, at_end=False)
    fetches = [next_fetch(schedule, lane) for lane in range(3)]
    assert [fetch.places for fetch in fetches if fetch] == [
        (place(0, 5), place(2)),
        (place(0, 900),),
        (place(1, 3, isolation=0),),
    ]


def test_a_place_left_out_of_a_full_response_goes_first_next_time() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    for partition in range(3):
        schedule.want(place(partition), at_end=False)
    assert next_fetch(schedule, 0) is not None
    schedule.read(place(0))
    schedule.read(place(1))
    schedule.want(place(0, 50), at_end=False)
    schedule.want(place(1, 50), at_end=False)
    schedule.empty(place(2), at_end=False)
    fetch = next_fetch(schedule, 1)
    assert fetch is not None
    assert fetch.places == (place(2), place(0, 50), place(1, 50))


def test_failures_pause_longer_and_longer_but_never_end() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=False)
    pauses = []
    now_ms = 1_000
    for _ in range(12):
        assert next_fetch(schedule, 0, now_ms) is not None
        schedule.lane_free(1, 0)
        pause_ms = schedule.failed(place(0), now_ms)
        assert next_fetch(schedule, 0, now_ms + pause_ms - 1) is None
        now_ms += pause_ms
        pauses.append(pause_ms)
    assert pauses[:3] == [RETRY_BASE_MS, 2 * RETRY_BASE_MS, 4 * RETRY_BASE_MS]
    assert max(pauses) == RETRY_MAX_MS
    assert schedule.failing_ms(place(0), now_ms) == sum(pauses)
    schedule.hurry()
    assert next_fetch(schedule, 0, now_ms) is not None
    schedule.empty(place(0), at_end=True)
    assert schedule.failing_ms(place(0), now_ms) == 0


def test_the_final_word_on_a_place_that_is_not_being_fetched() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=False)
    assert schedule.unplaced(lambda _: None, 0) == [place(0)]
    schedule.read(place(0))
    schedule.check_invariants()
    assert schedule.unplaced(lambda _: None, 0) == []
    assert next_fetch(schedule, 0) is None


def test_a_place_dropped_while_it_is_fetched_is_not_fetched_again() -> None:
    schedule = FetchSchedule(FETCH_LANES)
    schedule.want(place(0), at_end=True)
    assert next_fetch(schedule, BUSY) is not None
    schedule.drop(place(0))
    schedule.empty(place(0), at_end=True)
    schedule.lane_free(1, BUSY)
    assert next_fetch(schedule, BUSY) is None

    schedule.want(place(1), at_end=True)
    assert next_fetch(schedule, 2) is not None
    schedule.drop(place(1))
    schedule.want(place(1), at_end=True)  # wanted again before the answer came
    schedule.empty(place(1), at_end=True)
    schedule.lane_free(1, 2)
    assert next_fetch(schedule, 2) is not None


class Lanes:
    """The lanes of one broker, as a reader runs them."""

    def __init__(self) -> None:
        self.schedule = FetchSchedule(FETCH_LANES)
        self.wanted: set[FetchPosition] = set()
        self.out: dict[int, list[FetchPosition]] = {}
        self.now_ms = 0

    @property
    def fetched(self) -> set[FetchPosition]:
        return {one for places in self.out.values() for one in places}

    def do(self, partition: int, what: str, lane: int) -> None:
        if what == "w":
            self.schedule.want(place(partition), at_end=partition % 2 == 0)
            self.wanted.add(place(partition))
        elif what == "d":
            self.schedule.drop(place(partition))
            self.wanted.discard(place(partition))
        elif what == "n":
            self.go(lane)
        else:
            self.come_back(lane, failed=what == "f")
        self.schedule.check_invariants()

    def go(self, lane: int) -> None:
        if lane in self.out:
            return
        fetch = next_fetch(self.schedule, lane, self.now_ms)
        if fetch is not None:
            assert not self.fetched & set(fetch.places)
            self.out[lane] = list(fetch.places)

    def come_back(self, lane: int, *, failed: bool) -> None:
        if lane not in self.out:
            return
        for one in self.out.pop(lane):
            if failed:
                self.schedule.failed(one, self.now_ms)
            else:
                self.schedule.empty(one, at_end=True)
        self.schedule.lane_free(1, lane)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from("wdfen"), st.integers(0, 3))))
def test_no_place_is_in_two_fetches_and_none_is_left(history: list[tuple[int, str, int]]) -> None:
    lanes = Lanes()
    for partition, what, lane in history:
        lanes.now_ms += 5
        lanes.do(partition, what, lane)
    lanes.schedule.hurry()
    # They come back one by one, and each time those that are free look for places.
    for _ in range(2 * FETCH_LANES):
        for lane in range(FETCH_LANES):
            lanes.go(lane)
        if lanes.wanted <= lanes.fetched:
            break
        lanes.come_back(min(lanes.out), failed=False)
    assert lanes.wanted <= lanes.fetched


def test_the_leader_is_known_only_for_the_very_same_topic() -> None:
    topology = Topology(
        brokers={1: Broker(1, "h", 1)},
        topics={
            "t": Topic("t", TOPIC_ID, {0: PartitionInfo(1, 0), 1: PartitionInfo(2, 0)}),
        },
    )
    assert leader_of(topology, tp(0)) == 1
    assert leader_of(topology, tp(1)) is None  # its leader is not alive
    assert leader_of(topology, tp(5)) is None
    assert leader_of(topology, TopicPartition("t", b"\1" * 16, 0)) is None
    assert leader_of(topology, TopicPartition("u", TOPIC_ID, 0)) is None
