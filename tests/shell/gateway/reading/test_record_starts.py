"""The beginnings of single records, from a broker that answers as it is told."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from gateway.core.reading.cache import Source
from gateway.core.wire.records import Header, HeaderStart, Record, RecordStart, build
from gateway.core.wire.schema import Message
from gateway.reading.limits import HEADER_BYTES_SHOWN, HEADERS_SHOWN
from gateway.reading.reader import Reader
from gateway.upstream.errors import UpstreamError
from tests.shell.gateway.reading.test_reader import OUT_OF_RANGE, TP, Log, run, whole

COMMITTED = Source(TP, 1)


def made(*headers: Header, offset: int = 0) -> Message:
    """An answer with one record, whose value is `secret`."""
    records = [Record(offset, 1_000, b"k", b"secret", list(headers))]
    return whole() | {"Records": build(records, base_offset=offset)}


def test_headers_in_their_order_and_again_from_the_cache() -> None:
    log = Log([made(("a", b"1"), ("none", None), ("a", b"2"))])

    async def work(reader: Reader) -> None:
        for _ in range(2):
            assert await reader.records.starts.of(COMMITTED, 0) == RecordStart(
                1_000,
                b"",
                len(b"secret"),
                [
                    HeaderStart("a", b"1", 1),
                    HeaderStart("none", None, 0),
                    HeaderStart("a", b"2", 1),
                ],
                3,
            )

    run(work, log)
    assert log.asked == 1


def test_no_more_of_them_than_fits_on_a_screen() -> None:
    long = HEADER_BYTES_SHOWN + 1
    headers = [("n" * long, b"v" * long) for _ in range(HEADERS_SHOWN + 1)]

    async def work(reader: Reader) -> None:
        found = await reader.records.starts.of(COMMITTED, 0)
        assert found is not None
        assert (found.headers_count, len(found.headers)) == (HEADERS_SHOWN + 1, HEADERS_SHOWN)
        cut = HEADER_BYTES_SHOWN
        assert set(map(repr, found.headers)) == {repr(HeaderStart("n" * cut, b"v" * cut, long))}

    run(work, Log([made(*headers)]))


def test_a_record_that_is_gone_has_none() -> None:
    async def work(reader: Reader) -> None:
        assert await reader.records.starts.of(COMMITTED, 0) is None, "retention took it"

    run(work, Log([OUT_OF_RANGE], start=3))

    async def later(reader: Reader) -> None:
        assert await reader.records.starts.of(COMMITTED, 1) is None, "compaction took it"

    records = [Record(0, 1_000, b"k", b"v"), Record(4, 1_000, b"k", b"v")]
    run(later, Log([whole() | {"Records": build(records, base_offset=0)}]))


def test_a_record_whose_headers_are_damaged_is_refused() -> None:
    """Its producer wrote it so, with the right checksum: it has two headers, and says five."""
    data = bytearray(made(("a", b"1"), ("b", b"2"))["Records"])
    count = data.index(b"\x04\x02a")  # zigzag
    data[count] = 5 * 2
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")

    async def work(reader: Reader) -> None:
        with pytest.raises(UpstreamError, match="offset 0 of orders-0"):
            await reader.records.starts.of(COMMITTED, 0)

    run(work, Log([whole() | {"Records": bytes(data)}]))


def test_a_value_is_read_as_far_as_it_is_asked_for() -> None:
    async def work(reader: Reader) -> None:
        found = await reader.records.starts.of(COMMITTED, 0, value_bytes_max=3)
        assert found is not None
        assert (found.value, found.value_bytes) == (b"sec", 6)

    run(work, Log([made()]))
