"""The audit passes a right run and sees every planted fault: the demo's zeros rest on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo.audit import Delivery, Report, TopicRecord, audit, log_line, parse_log

# Two partitions; key a has offsets 0, 2, 4 of partition 0, null keys at 3 of it.
TOPIC = {
    0: [
        TopicRecord(0, b"a", 10),
        TopicRecord(1, b"b", 11),
        TopicRecord(2, b"a", 12),
        TopicRecord(3, None, 13),
        TopicRecord(4, b"a", 14),
    ],
    1: [TopicRecord(0, b"a", 20), TopicRecord(1, None, 21), TopicRecord(7, None, 27)],
}


def delivery(
    at_ns: int, partition: int, offset: int, consumer: str = "one", times: int = 1
) -> Delivery:
    checksum = 10 * (partition + 1) + offset
    return Delivery(consumer, at_ns, partition, offset, times, checksum)


RIGHT = [
    delivery(1, 0, 0),
    delivery(2, 0, 2, "two"),
    delivery(3, 0, 4),
    delivery(4, 0, 3),  # no key: no order
    delivery(5, 0, 1, "two"),
    delivery(6, 1, 7),
    delivery(7, 1, 1),
    delivery(8, 1, 0),
]


def test_right_run_passes() -> None:
    assert audit(TOPIC, RIGHT) == Report(
        records=8,
        keys=2,
        unkeyed=3,
        consumers=2,
        delivered=8,
        redelivered=0,
        repeated=0,
        lost=0,
        altered=0,
        unknown=0,
        keys_out_of_order=0,
    )
    assert audit(TOPIC, RIGHT).passed


def test_order_of_the_logs_does_not_matter() -> None:
    assert audit(TOPIC, list(reversed(RIGHT))) == audit(TOPIC, RIGHT)


def test_lost_record() -> None:
    report = audit(TOPIC, [line for line in RIGHT if (line.partition, line.offset) != (1, 7)])
    assert report.lost == 1
    assert not report.passed
    assert report.first_fault == "partition 1 offset 7: in no log"


def test_repeat_before_the_next_of_its_key_is_allowed() -> None:
    # The killed consumer had processed 0 but not acknowledged it; the next one gets it again.
    report = audit(TOPIC, [delivery(0, 0, 0, "killed"), *RIGHT[1:], delivery(1, 0, 0, times=2)])
    assert (report.redelivered, report.repeated, report.delivered) == (1, 1, 9)
    assert report.passed


def test_repeat_after_the_next_of_its_key_is_a_step_back() -> None:
    report = audit(TOPIC, [*RIGHT, delivery(9, 0, 2, "one", times=2)])
    assert report.keys_out_of_order == 1
    assert not report.passed
    assert report.first_fault == (
        "key b'a': partition 0 offset 2 by one after partition 0 offset 4 by one"
    )


@pytest.mark.parametrize(("early", "late"), [(0, 1), (1, 2), (0, 2)])
def test_swapped_records_of_a_key(early: int, late: int) -> None:
    swapped = list(RIGHT)
    swapped[early] = RIGHT[late]._replace(at_ns=RIGHT[early].at_ns)
    swapped[late] = RIGHT[early]._replace(at_ns=RIGHT[late].at_ns)
    report = audit(TOPIC, swapped)
    assert report.keys_out_of_order == 1
    assert report.lost == 0


def test_swap_across_two_consumers_is_seen() -> None:
    by_two = [line._replace(consumer=f"c{line.offset}") for line in RIGHT]
    by_two[0] = by_two[0]._replace(at_ns=10)  # offset 0 after offsets 2 and 4
    assert audit(TOPIC, by_two).keys_out_of_order == 1


def test_same_key_in_two_partitions_is_two_units() -> None:
    # Kafka orders within a partition; (0, a) and (1, a) may interleave as they like.
    moved = [line._replace(at_ns=0) if line.partition == 1 else line for line in RIGHT]
    assert audit(TOPIC, moved).passed


def test_altered_value() -> None:
    report = audit(TOPIC, [RIGHT[0]._replace(checksum=999), *RIGHT[1:]])
    assert report.altered == 1
    assert not report.passed


@pytest.mark.parametrize(("partition", "offset"), [(0, 5), (1, 2), (2, 0)])
def test_record_that_is_not_in_the_topic(partition: int, offset: int) -> None:
    report = audit(TOPIC, [*RIGHT, delivery(9, partition, offset)])
    assert report.unknown == 1
    assert not report.passed


def test_nothing_delivered_is_everything_lost() -> None:
    report = audit(TOPIC, [])
    assert (report.lost, report.consumers, report.passed) == (8, 0, False)


def test_each_fault_alone_fails_the_report() -> None:
    right = audit(TOPIC, RIGHT)
    assert replace(right, redelivered=5, repeated=5).passed
    assert not replace(right, lost=1).passed
    assert not replace(right, altered=1).passed
    assert not replace(right, unknown=1).passed
    assert not replace(right, keys_out_of_order=1).passed


def test_log_lines_round_trip() -> None:
    text = "".join(log_line(line) for line in RIGHT)
    assert parse_log("one", text) == [line._replace(consumer="one") for line in RIGHT]


def test_line_cut_off_by_a_kill_does_not_count() -> None:
    text = "".join(log_line(line) for line in RIGHT[:2])
    assert len(parse_log("one", text[:-1])) == 1
    assert len(parse_log("one", text[: text.index("\n") + 3])) == 1
    assert parse_log("one", "12 3") == []
