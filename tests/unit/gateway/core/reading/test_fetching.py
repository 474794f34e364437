"""Places and their fetches: none waits behind the long polls of others, none starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, TopicPartition, Topology
from gateway.core.limits import (
    BUSY_POLL_MS,
    LONG_POLL_MS,
    QUIET_MS,
    RETRY_BASE_MS,
    RETRY_MAX_MS,
    SHORT_POLL_MS,
)
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import (
    QUIET_LANE,
    SECOND_LANE,
    Fetch,
    FetchSchedule,
    Place,
    leader_of,
)
from gateway.reading.limits import FETCH_LANES

TOPIC_ID = b"\7" * 16
BUSY = SECOND_LANE + 1
NOW_MS = 1_000


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", TOPIC_ID, partition)


def place(partition: int, position: int = 0, isolation: int = 1) -> Place:
    return Place(Source(tp(partition), isolation), position)


def one_leads(_: TopicPartition) -> int:
    return 1


def next_fetch(schedule: FetchSchedule, lane: int, now_ms: int = NOW_MS) -> Fetch | None:
    fetch = schedule.next_fetch(1, lane, one_leads, now_ms)
    schedule.check_invariants()
    return fetch


def quiet(schedule: FetchSchedule, one: Place) -> None:
    """`one` was polled at the log's end and brought nothing for QUIET_MS."""
    schedule.want(one, at_end=True)
    assert next_fetch(schedule, BUSY, NOW_MS - QUIET_MS) == Fetch(1, BUSY_POLL_MS, (one,))
    schedule.empty(one, at_end=True)
    schedule.lane_free(1, BUSY)


def test_what_is_behind_goes_first_and_does_not_wait() -> None:
    schedule = FetchSchedule()
    schedule.want(place(0, 100), at_end=True)
    schedule.want(place(1), at_end=False)
    assert next_fetch(schedule, 0) == Fetch(1, 0, (place(1),))
    assert next_fetch(schedule, 1) == Fetch(1, SHORT_POLL_MS, (place(0, 100),))
    assert next_fetch(schedule, 2) is None


def test_the_long_poll_is_for_places_where_nothing_happens() -> None:
    schedule = FetchSchedule()
    quiet(schedule, place(0))
    schedule.want(place(1), at_end=True)
    assert next_fetch(schedule, QUIET_LANE) == Fetch(1, LONG_POLL_MS, (place(0),))
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(1),))


def test_nothing_happens_once_polls_have_brought_nothing_for_a_while() -> None:
    schedule = FetchSchedule()
    schedule.want(place(0), at_end=True)
    for now_ms in range(0, QUIET_MS, BUSY_POLL_MS):
        assert next_fetch(schedule, QUIET_LANE, now_ms) is None
        assert next_fetch(schedule, BUSY, now_ms) is not None
        schedule.empty(place(0), at_end=True)
        schedule.lane_free(1, BUSY)
    assert next_fetch(schedule, BUSY, QUIET_MS) is None
    assert next_fetch(schedule, QUIET_LANE, QUIET_MS) is not None


def test_quiet_places_take_no_more_than_two_lanes() -> None:
    schedule = FetchSchedule()
    for partition in range(3):
        quiet(schedule, place(partition))
        if partition == 0:
            assert next_fetch(schedule, SECOND_LANE) is None  # the first is free for it
            assert next_fetch(schedule, QUIET_LANE) is not None
        elif partition == 1:
            assert next_fetch(schedule, SECOND_LANE) == Fetch(1, SHORT_POLL_MS, (place(1),))
    assert [next_fetch(schedule, lane) for lane in range(BUSY, FETCH_LANES)] == [None, None]
    schedule.want(place(9), at_end=True)
    assert next_fetch(schedule, BUSY) == Fetch(1, BUSY_POLL_MS, (place(9),))

    for partition in range(2):  # both come back with nothing: they go on together
        schedule.empty(place(partition), at_end=True)
        schedule.lane_free(1, partition)
    together = (place(2), place(0), place(1))
    assert next_fetch(schedule, QUIET_LANE) == Fetch(1, LONG_POLL_MS, together)


def test_what_failed_is_asked_for_at_once_and_not_polled() -> None:
    schedule = FetchSchedule()
    quiet(schedule, place(0))
    assert next_fetch(schedule, QUIET_LANE) is not None
    pause_ms = schedule.failed(place(0), NOW_MS)
    assert next_fetch(schedule, BUSY, NOW_MS + pause_ms) == Fetch(1, 0, (place(0),))


def test_one_request_holds_a_partition_once_and_one_isolation_level() -> None:
    schedule = FetchSchedule()
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
    schedule = FetchSchedule()
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
    schedule = FetchSchedule()
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
    schedule = FetchSchedule()
    schedule.want(place(0), at_end=False)
    assert schedule.unplaced(lambda _: None, 0) == [place(0)]
    schedule.read(place(0))
    schedule.check_invariants()
    assert schedule.unplaced(lambda _: None, 0) == []
    assert next_fetch(schedule, 0) is None


def test_a_place_dropped_while_it_is_fetched_is_not_fetched_again() -> None:
    schedule = FetchSchedule()
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


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from("wdfen"), st.integers(0, 3))))
def test_no_place_is_in_two_fetches(history: list[tuple[int, str, int]]) -> None:
    schedule = FetchSchedule()
    out: dict[int, list[Place]] = {}
    now_ms = 0
    for partition, what, lane in history:
        now_ms += 50
        if what == "w":
            schedule.want(place(partition), at_end=partition % 2 == 0)
        elif what == "d":
            schedule.drop(place(partition))
        elif what == "n" and lane not in out:
            fetch = next_fetch(schedule, lane, now_ms)
            if fetch is not None:
                assert not {p for places in out.values() for p in places} & set(fetch.places)
                out[lane] = list(fetch.places)
        elif what in "fe" and lane in out:
            for one in out.pop(lane):
                if what == "f":
                    schedule.failed(one, now_ms)
                else:
                    schedule.empty(one, at_end=True)
            schedule.lane_free(1, lane)
        schedule.check_invariants()


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
