"""Transactions and batches follow the speed of the target."""

from __future__ import annotations

import pytest

from spark.streaming.core.limits import (
    BATCH_RECORDS_MIN,
    TRANSACTION_BYTES_FIRST,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_S,
)
from spark.streaming.core.pace import BatchSize, Pace


def seconds_of_each(rate: float, transactions: int, timeout_s: float = 60.0) -> list[float]:
    """Of transactions against a target that takes `rate` bytes a second, and all of them late: the
    producer's queue takes what it is given, and the commit waits for the target.
    """
    pace, took = Pace(timeout_s), []
    for _ in range(transactions):
        written = pace.bytes_max
        took.append(written / rate)
        pace.committed(written, took[-1])
    return took


@pytest.mark.parametrize("rate", [10_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000])
def test_no_transaction_comes_near_its_time_out(rate: float) -> None:
    assert max(seconds_of_each(rate, 50)) < 30


@pytest.mark.parametrize("rate", [100_000, 1_000_000, 4_000_000])
def test_a_transaction_takes_as_long_as_it_is_to(rate: float) -> None:
    assert seconds_of_each(rate, 50)[-1] == pytest.approx(TRANSACTION_S, rel=0.01)


def test_a_shorter_time_out_makes_shorter_transactions() -> None:
    assert seconds_of_each(1_000_000, 50, timeout_s=8.0)[-1] == pytest.approx(1.0, rel=0.01)


def test_a_target_that_becomes_slow_gets_less() -> None:
    pace = Pace(60.0)
    for _ in range(20):
        pace.committed(pace.bytes_max, 0.1)
    assert pace.bytes_max == TRANSACTION_BYTES_MAX
    pace.committed(TRANSACTION_BYTES_MAX, 50.0)
    assert pace.bytes_max == int(TRANSACTION_BYTES_MAX / 10)


def test_a_small_transaction_says_nothing_about_the_target() -> None:
    pace = Pace(60.0)
    pace.committed(pace.bytes_max, 0.1)
    before = pace.bytes_max
    pace.committed(1_000, 0.5)
    assert pace.bytes_max == before > TRANSACTION_BYTES_FIRST


def test_records_of_a_batch_follow_their_size() -> None:
    size = BatchSize(records_max=400_000, bytes_max=256_000_000)
    assert not size.measured(400_000, 100_000_000, 5.0, cut=False)
    assert size.measured(2_560, 256_000_000, 10.0, cut=True), "records of 100 kB"
    assert size.records == 2_560
    assert not size.measured(2_560, 256_000_000, 10.0, cut=False)
    assert size.measured(2_560, 2_560_000, 0.1, cut=False), "records of 1 kB"
    assert size.records == 256_000


def test_records_of_a_batch_follow_the_speed_of_the_target() -> None:
    size = BatchSize(records_max=400_000, bytes_max=256_000_000)
    assert size.measured(120_000, 120_000_000, 30.0, cut=True)
    assert size.records == 60_000, "half the time that a task may take"


def test_a_batch_of_few_records_says_nothing() -> None:
    size = BatchSize(records_max=400_000, bytes_max=256_000_000)
    assert not size.measured(10, 10_000_000, 1.0, cut=False)
    assert size.records == 400_000


def test_a_batch_has_some_records_whatever_their_size() -> None:
    size = BatchSize(records_max=400_000, bytes_max=256_000_000)
    assert size.measured(1, 100_000_000, 60.0, cut=True)
    assert size.records == BATCH_RECORDS_MIN
