"""The offsets file of a Spark checkpoint."""

from __future__ import annotations

import pytest

from offsets.core.checkpoint import (
    MalformedCheckpoint,
    offsets_file,
    read_offsets_file,
    starting_offsets,
)

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"a":"b"}}'
FILE = f'v1\n{METADATA}\n{{"other":{{"0":7}},"topic":{{"0":23,"1":5}}}}'


def test_a_file_of_spark_comes_back() -> None:
    found = read_offsets_file(FILE)
    assert found.offsets == {("topic", 0): 23, ("topic", 1): 5, ("other", 0): 7}
    assert offsets_file(found) == FILE


def test_at_other_offsets_the_settings_stay() -> None:
    moved = read_offsets_file(FILE).at({("topic", 10): 1, ("topic", 2): 3})
    assert starting_offsets(moved) == '{"topic":{"2":3,"10":1}}'
    assert offsets_file(moved).splitlines()[1] == METADATA


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with ''"),
        (FILE.replace("v1", "v2", 1), "not v1"),
        (f"v1\n{METADATA}\n-", "its source is not Kafka's"),
        (f"v1\n{METADATA}\n5", "its source is not Kafka's"),
        (f'v1\n{METADATA}\n{{"t":{{"x":1}}}}', "its source is not Kafka's"),
        (f'v1\n{METADATA}\n{{"t":{{"0":-2}}}}', "no places in a log"),
        (f"{FILE}\n{{}}", "has 2 sources"),
    ],
)
def test_what_cannot_move_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedCheckpoint, match=reason):
        read_offsets_file(text)
