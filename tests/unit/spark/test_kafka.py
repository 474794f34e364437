"""Answers of Kafka that do not come."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark import kafka
from spark.kafka import answered, jaas_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", '"plain"'),
        ("pässwörd€😀", '"pässwörd€😀"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("a\nb", '"a\\012b"'),
    ],
)
def test_a_password_as_java_s_parser_reads_it(text: str, expected: str) -> None:
    """It knows no `\\u`, so a password that JSON had escaped was another one."""
    assert jaas_text(text) == expected


def test_no_answer_is_an_error_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TimeoutError ended the link, where a cluster that is away is waited for."""
    monkeypatch.setattr(kafka, "ANSWER_S", 0.01)
    with pytest.raises(KafkaException) as raised:
        answered(Future[None]())
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    come = Future[int]()
    come.set_result(4)
    assert answered(come) == 4
