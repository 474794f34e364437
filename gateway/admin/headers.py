"""Headers of records as REST shows them to those who may see keys: the beginning of each."""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from typing import TypedDict

from gateway.admin.rows import HeaderRow
from gateway.core.wire.records import HeaderStart, RecordStart

_utf8 = getincrementaldecoder("utf-8")


class ShownHeaders(TypedDict, total=False):
    """Fields of ParkedRecordRow."""

    headers: list[HeaderRow]
    headers_count: int
    timestamp_ms: int | None


def shown_headers(found: RecordStart | None) -> ShownHeaders:
    """None: nobody asked for them, or the record is gone."""
    if found is None:
        return ShownHeaders()
    return ShownHeaders(
        headers=[_row(header) for header in found.headers],
        headers_count=found.headers_count,
        timestamp_ms=None if found.timestamp < 0 else found.timestamp,
    )


def _row(header: HeaderStart) -> HeaderRow:
    if header.value is None:
        return HeaderRow(name=header.name, value=None, value_bytes=None)
    size = header.value_bytes
    text = _text(header.value, cut=size > len(header.value))
    if text is not None:
        return HeaderRow(name=header.name, value=text, value_bytes=size)
    value_base64 = base64.b64encode(header.value).decode()
    return HeaderRow(name=header.name, value_base64=value_base64, value_bytes=size)


def _text(value: bytes, *, cut: bool) -> str | None:
    """None: it is no UTF-8. A character that the cut has parted is left out."""
    try:
        return _utf8().decode(value, final=not cut)
    except UnicodeDecodeError:
        return None
