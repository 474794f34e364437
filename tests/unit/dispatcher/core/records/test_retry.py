from __future__ import annotations

import pytest

from dispatcher.core.model import MemberId, Policy, Reason
from dispatcher.core.records.retry import Retry, RetryBook, backoff_ms, new_retry
from dispatcher.core.steps import RetryState


def released(offset: int) -> Retry:
    return new_retry(offset, Reason.RELEASED, MemberId("c1"), 1)


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 100), (2, 200), (4, 800), (5, 1_000), (10_000, 1_000)]
)
def test_backoff(failures: int, expected: int) -> None:
    policy = Policy(backoff_base_ms=100, backoff_max_ms=1_000)
    assert backoff_ms(policy, failures) == expected


def test_a_back_off_without_a_cap_to_speak_of_is_a_number_still() -> None:
    policy = Policy(backoff_base_ms=1, backoff_max_ms=1 << 60)
    assert backoff_ms(policy, 1_000_000) == 1 << 40


def test_due_in_order_of_time_and_offset() -> None:
    book = RetryBook()
    for offset, due_ms in ((5, 20), (3, 10), (9, 10), (1, 30)):
        book.note(released(offset))
        book.wait(book.by_offset[offset], due_ms)
    assert not book.is_due(9)
    assert [retry.offset for retry in book.take_due(20)] == [3, 9, 5]
    assert [retry.offset for retry in book.take_due(30)] == [1]


def test_a_timer_of_the_past_wakes_nobody() -> None:
    book = RetryBook()
    retry = released(1)
    book.note(retry)
    book.wait(retry, 10)
    book.wait(retry, 50)
    assert book.take_due(20) == []
    book.turn(retry, RetryState.PARKED)
    assert book.take_due(60) == []
    assert book.timers == []


def test_a_timer_of_the_past_holds_no_other_up() -> None:
    book = RetryBook()
    for offset, due_ms in ((1, 10), (1, 50), (2, 20)):
        if offset not in book.by_offset:
            book.note(released(offset))
        book.wait(book.by_offset[offset], due_ms)
    assert [retry.offset for retry in book.take_due(20)] == [2]


def test_held() -> None:
    book = RetryBook()
    assert not book.held(1)
    assert book.deliveries(1) == 0
    book.note(released(1))
    assert not book.held(1)
    book.wait(book.by_offset[1], 5)
    assert book.held(1)
