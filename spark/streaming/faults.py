"""The cause of a failure, in one line.

Spark wraps what happened several times: the exception of a task or of Kafka's source stands at the
end of a chain of "Caused by", or behind the traceback of a Python worker.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

FAULT_CHARACTERS_MAX = 300
_LINE_CHARACTERS_MAX = 2_000  # of a stack: it may hold a whole plan

_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Exception|Error|Moved))(?:: (.*))?$")
_KAFKA_ERROR = re.compile(r'KafkaError\{.*?str="(.*)"\}')
# They only say that something else happened.
_WRAPPERS = frozenset(
    {
        "Py4JException",
        "Py4JJavaError",
        "PythonException",
        "SparkException",
        "StreamingQueryException",
        "ExecutionException",
    }
)


def cause(error: BaseException) -> str:
    """The cause of a failure of a client, of Spark, or of anything else."""
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return str(error.args[0].str())[:FAULT_CHARACTERS_MAX]
    lines = [
        line.strip()[:_LINE_CHARACTERS_MAX] for line in str(error).splitlines() if line.strip()
    ]
    found = [told for line in lines if (told := _told(line)) is not None]
    chosen = found[-1] if found else (lines or [type(error).__name__])[0]
    return chosen[:FAULT_CHARACTERS_MAX]


def _told(line: str) -> str | None:
    """What a line of a stack trace says happened; None if it says nothing or only wraps another."""
    if kafka := _KAFKA_ERROR.search(line):
        return kafka[1]
    start = 0
    while found := _EXCEPTION.search(line, start):
        name = found[1].rpartition(".")[2]
        if name not in _WRAPPERS:
            return f"{name}: {found[2]}" if found[2] else name
        if found[2] is None:
            return None
        start = found.start(2)
    return None
