"""An index that comes back from bytes; random histories do it in between, too."""

from __future__ import annotations

import pytest

from offsets.core.index import EPOCH_NOT_KNOWN, PartitionIndex
from offsets.core.model import Rows, Stream
from offsets.core.stored import Unusable, packed, unpacked

OWN, OTHER = Stream("A", "topic", 0, "id"), Stream("B", "elsewhere", 1)


def example() -> PartitionIndex:
    index = PartitionIndex(OWN, 0, segment_records=2)
    index.extend(
        Rows([0, 1, 4, 5, 9], [50, 40, 30, 60, 70], [OTHER, OWN, OTHER, OWN, OWN], [7, 1, 8, 5, 9]),
        12,
    )
    index.forget(3)
    index.epoch = 2
    return index


def state(index: PartitionIndex) -> dict[str, object]:
    names = ("own", "start", "end", "whole", "firsts", "lasts", "earliest", "latest", "last_ms")
    more = (
        "late",
        "records",
        "passed",
        "passed_last_ms",
        "copies",
        "former_end",
        "latest_ms",
        "epoch",
    )
    found: dict[str, object] = {name: getattr(index, name) for name in names + more}
    for stream, spans in index.spans.items():
        found |= {f"{stream} {name}": getattr(spans, name) for name in ("low", "high", "records")}
    return found


def test_an_index_comes_back() -> None:
    index = example()
    again = unpacked(packed(index))
    assert state(again) == state(index)
    for one in (index, again):
        one.extend(Rows([12, 13], [80, 90], [OTHER, OTHER], [9, 10]), 14)
    assert state(again) == state(index)
    assert state(unpacked(packed(PartitionIndex(OWN, 7)))) == state(PartitionIndex(OWN, 7))


def test_an_index_of_a_version_that_knew_no_epochs() -> None:
    told = b',"epoch":2'
    data = packed(example())
    size = int.from_bytes(data[:4], "little") - len(told)
    index = unpacked(size.to_bytes(4, "little") + data[4:].replace(told, b""))
    assert (index.behind_last, index.end) == ((10, EPOCH_NOT_KNOWN), 12)


@pytest.mark.parametrize(
    "data", [b"", b"\x02\0\0\0{}", packed(example())[:-1], packed(example()) + b"\0", b"x" * 99]
)
def test_bytes_that_are_no_index(data: bytes) -> None:
    with pytest.raises(Unusable):
        unpacked(data)
