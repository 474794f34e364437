"""The cause of a failure, out of all that Spark wraps around it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark.streaming.faults import FAULT_CHARACTERS_MAX, cause

IN_A_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception \
was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/usr/lib/pyspark/sql/utils.py", line 120, in call
    raise e
pyspark.errors.exceptions.captured.PythonException:
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/keyway/spark/streaming/produce.py", line 222, in _exactly_once
    producer.commit_transaction(60)
cimpl.KafkaException: KafkaError{code=TRANSACTION_TIMED_OUT,val=90,str="took too long"}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:581)
SQLSTATE: XXKST"""
IN_THE_SOURCE = """An error occurred while calling o54.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 3 \
times, most recent failure: Lost task 0.2 in stage 1.0 (TID 3) (127.0.0.1 executor driver): \
java.lang.ArithmeticException: long overflow
\tat java.base/java.lang.Math.multiplyExact(Math.java:1004)
\tat org.apache.spark.sql.catalyst.util.SparkDateTimeUtils.millisToMicros(SparkDateTimeUtils.scala)
Caused by: java.lang.ArithmeticException: long overflow
\t... 1 more"""
MOVED = """pyspark.errors.exceptions.captured.PythonException:
Traceback (most recent call last):
spark.streaming.produce.PositionMoved: orders-0: the target is at 3, this run reached 5"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_A_WORKER, "took too long"),
        (IN_THE_SOURCE, "ArithmeticException: long overflow"),
        (
            MOVED,
            "PositionMoved: orders-0: the target is at 3, this run reached 5",
        ),
        ("nothing that looks like an exception\nat all", "nothing that looks like an exception"),
        ("", "RuntimeError"),
    ],
)
def test_the_innermost_exception_is_told(text: str, expected: str) -> None:
    assert cause(RuntimeError(text)) == expected


def test_an_error_of_the_client_is_told_in_its_words() -> None:
    error = KafkaError(KafkaError._ALL_BROKERS_DOWN, "no target answers")
    assert cause(KafkaException(error)) == "no target answers"


def test_a_cause_is_bounded() -> None:
    assert len(cause(RuntimeError("x" * 100_000))) == FAULT_CHARACTERS_MAX
