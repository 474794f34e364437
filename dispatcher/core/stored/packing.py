"""Leases and retries as the bytes a store keeps.

A lease is written for every Acquire, so its offsets are on the hot path: ascending, they become
LEB128 varints of their differences, one byte for nearly each of them. The deadline comes first and
has a fixed width, so that a store can replace it without reading the rest.

Enums are stored by the codes written down here, never by their order: a store outlives the code.
"""

from __future__ import annotations

import struct

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import LeaseState, LeaseTaken, RetryNoted, RetryState

_DEADLINE = struct.Struct(">q")
_RETRY = struct.Struct(">IqBB")  # deliveries, due_ms, state, reason; the member id follows

_STATE_CODES = {
    RetryState.WAITING: 1,
    RetryState.IN_FLIGHT: 2,
    RetryState.PARKED: 3,
    RetryState.DEAD_LETTER: 4,
}
_REASON_CODES = {
    Reason.RELEASED: 1,
    Reason.REJECTED: 2,
    Reason.LOCK_TIMEOUT: 3,
    Reason.SESSION_CLOSED: 4,
    Reason.MEMBER_LEFT: 5,
    Reason.MEMBER_EVICTED: 6,
    Reason.GAP_ACK: 7,
    Reason.OPERATOR: 8,
    Reason.NOT_SENT: 9,
}
# For a store that counts the parked retries by itself: the byte of the state, and its value then.
RETRY_STATE_AT = 12
PARKED_CODE = _STATE_CODES[RetryState.PARKED]
_STATES = {code: state for state, code in _STATE_CODES.items()}
_REASONS = {code: reason for reason, code in _REASON_CODES.items()}


class Unreadable(Exception):
    """These bytes were not written by this version of this module, or were damaged since."""


def pack_lease(lease: LeaseTaken) -> bytes:
    """Deadline (8 bytes), member and session (each a varint length and UTF-8), count, offsets."""
    out = BytesWriter()
    write_i64_be(out, lease.deadline_ms)
    for name in (lease.member_id.encode(), lease.session_id.encode()):
        _write_varint(out, len(name))
        out.write(name)
    _write_varint(out, len(lease.offsets))
    _write_offsets(out, lease.offsets)
    return out.getvalue()


def pack_deadline(deadline_ms: int) -> bytes:
    """The first 8 bytes of a lease."""
    return _DEADLINE.pack(deadline_ms)


def unpack_lease(lease_id: LeaseId, data: bytes) -> LeaseState:
    """Raises Unreadable."""
    try:
        (deadline_ms,) = _DEADLINE.unpack_from(data)
        size, at = _read_varint(data, _DEADLINE.size)
        member_id = data[at : at + size].decode()
        size, at = _read_varint(data, at + size)
        session_id = data[at : at + size].decode()
        count, at = _read_varint(data, at + size)
        offsets = _read_offsets(data, at, count)
    except (struct.error, IndexError, ValueError) as error:
        raise Unreadable(f"lease {lease_id}: {error}") from error
    return LeaseState(lease_id, MemberId(member_id), SessionId(session_id), deadline_ms, offsets)


def pack_retry(retry: RetryNoted) -> bytes:
    return (
        _RETRY.pack(
            retry.deliveries,
            retry.due_ms,
            _STATE_CODES[retry.state],
            _REASON_CODES[retry.reason],
        )
        + retry.member_id.encode()
    )


def unpack_retry(offset: int, data: bytes) -> RetryNoted:
    """Raises Unreadable."""
    try:
        deliveries, due_ms, state, reason = _RETRY.unpack_from(data)
        member_id = MemberId(data[_RETRY.size :].decode())
        return RetryNoted(offset, deliveries, due_ms, _STATES[state], _REASONS[reason], member_id)
    except (struct.error, KeyError, ValueError) as error:
        raise Unreadable(f"retry of offset {offset}: {error}") from error


def _write_offsets(out: BytesWriter, offsets: list[int]) -> None:
    previous: i64 = 0
    for number in offsets:
        offset: i64 = number
        delta: i64 = offset - previous
        assert delta >= 0, "offsets of a lease ascend"
        previous = offset
        while delta > 127:
            out.append((delta & 127) | 128)
            delta >>= 7
        out.append(delta)


def _write_varint(out: BytesWriter, number: i64) -> None:
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)


def _read_offsets(data: bytes, at: i64, count: i64) -> list[int]:
    offsets: list[int] = []
    offset = 0
    while at < len(data):
        delta, at = _read_varint(data, at)
        offset += delta
        offsets.append(offset)
    if len(offsets) != count:
        raise ValueError(f"{len(offsets)} offsets instead of {count}")
    return offsets


def _read_varint(data: bytes, at: i64) -> tuple[int, int]:
    number: i64 = 0
    shift: i64 = 0
    while shift < 63:
        byte: i64 = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError("endless number")
