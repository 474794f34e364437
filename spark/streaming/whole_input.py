"""Whether a task has got all rows of its partition.

Where Spark cannot read on (a broker is away, records are damaged, another task has failed and this
one is to end), the JVM just closes the stream to the Python worker. To the function of `mapInArrow`
that looks as if there were no more rows, and it has time to commit before the worker is ended. What
tells the two apart is a word that the JVM writes behind the last row.
"""

from __future__ import annotations

import sys
from io import BufferedReader, BufferedRWPair

from pyspark import TaskContext


class CutShort(Exception):
    """The rest of the rows has not come. The JVM knows why, and says so."""


def require_whole() -> None:
    """Called behind the last row. Raises CutShort. Outside of Spark every input is whole."""
    stream = _stream()
    if stream is None and TaskContext.get() is None:
        return
    if stream is None or not stream.peek(1):
        raise CutShort("Spark has not read all records of the batch")


def _stream() -> BufferedReader | BufferedRWPair | None:
    """What the worker reads: a variable of pyspark.worker, of which there is no other name."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "main":
            stream = frame.f_locals.get("infile")
            if isinstance(stream, BufferedReader | BufferedRWPair):  # with a daemon, without one
                return stream
    return None
