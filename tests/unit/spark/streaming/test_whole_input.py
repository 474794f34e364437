"""The end of a task's rows, in a worker as pyspark.worker makes it, without Spark.

tests/spark/test_cut_short.py has the real one.
"""

from __future__ import annotations

from io import BufferedReader, BytesIO

import pytest
from pyspark import TaskContext

from spark.streaming.whole_input import CutShort, require_whole

END_OF_STREAM = b"\xff\xff\xff\xfc"


def main(sent: bytes) -> None:
    """As pyspark.worker's: the function of `mapInArrow` is called somewhere below it."""
    infile = BufferedReader(BytesIO(sent))  # noqa: F841 - found by its name

    def process() -> None:
        require_whole()

    process()


def test_rows_behind_which_the_jvm_has_said_so_are_all() -> None:
    main(END_OF_STREAM)
    with pytest.raises(CutShort):
        main(b"")


def test_outside_of_spark_there_is_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    require_whole()
    monkeypatch.setattr(TaskContext, "get", lambda: "a task of another pyspark")
    with pytest.raises(CutShort):
        require_whole()
