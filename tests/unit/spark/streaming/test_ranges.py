"""The ends of a micro-batch, and the places that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.streaming.ranges import batch_ends, moved

OFFSETS = """v1
{"batchWatermarkMs":0,"batchTimestampMs":1763900000000,"conf":{}}
{"orders":{"1":7,"0":11},"flights":{"0":3}}"""


def checkpoint(folder: Path, text: str) -> Path:
    (folder / "offsets").mkdir()
    (folder / "offsets" / "4").write_text(text)
    return folder


def test_the_ends_of_a_batch_stand_in_spark_s_checkpoint(tmp_path: Path) -> None:
    found = batch_ends(checkpoint(tmp_path, OFFSETS), 4)
    assert found == {("orders", 0): 11, ("orders", 1): 7, ("flights", 0): 3}


def test_a_checkpoint_of_another_spark_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="version v2, not v1"):
        batch_ends(checkpoint(tmp_path, OFFSETS.replace("v1", "v2", 1)), 4)


def test_a_range_that_stood_still_is_not_read() -> None:
    ends = {("t", 0): 11, ("t", 1): 5, ("t", 2): 8}
    assert moved(ends, {("t", 0): 10, ("t", 1): 5, ("t", 2): 3}) == {("t", 0), ("t", 2)}


def test_a_place_whose_beginning_nobody_knows_is_left_where_it_is() -> None:
    assert moved({("t", 0): 11}, {}) == set()
