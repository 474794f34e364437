"""A client's socket under TLS, with the bounds of a plain one.

The event loop's TLS keeps up to 256 KiB of its own in each direction, beside what the socket below
keeps, and tells nobody of the bytes that wait in that socket. Here the socket below is paused
together with the layer above, and the client's protocol hears that the socket is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from gateway.listen.limits import PAUSE_ABOVE_BYTES, SMALL_READ_BYTES, TLS_READ_BYTES_MAX
from gateway.listen.unsent import Unsent

_NEVER = 1 << 30  # bytes: the layer's own mark, which nothing waits for


class Between(asyncio.BufferedProtocol):
    """Between a socket and the event loop's layer of TLS, from the first byte on. `early`: bytes
    that came before the layer was there. `moved` is called with each read of the handshake.
    """

    def __init__(
        self,
        layer: asyncio.BufferedProtocol,
        early: bytes,
        unsent: Unsent,
        moved: Callable[[], None],
    ) -> None:
        self.first_byte: int | None = early[0] if early else None
        self.client: asyncio.BaseProtocol | None = None  # once the handshake is done
        self._layer = layer
        self._unsent = unsent
        self._moved = moved
        self._early = early
        self._comes_early = False  # what is being read
        self._full = False
        self._buffer = memoryview(b"")  # of the read under way

    def feed(self) -> None:
        """Gives the layer what came early."""
        while self._early:
            buffer = memoryview(self._layer.get_buffer(len(self._early)))
            part = self._early[: len(buffer)]
            self._early = self._early[len(part) :]
            buffer[: len(part)] = part
            self._layer.buffer_updated(len(part))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Feeds nothing: uvloop asks for the buffer in the middle of its read, and a layer that
        closes the socket there, as it does when the client is gone, takes the process with it.
        """
        self._comes_early = len(self._early) > 0
        buffer = bytearray(TLS_READ_BYTES_MAX) if self._early else self._layer.get_buffer(sizehint)
        # A handshake is read at once: with its last words a client may send all it has, and leave.
        small = self._unsent.full and self.client is not None
        most = SMALL_READ_BYTES if small else TLS_READ_BYTES_MAX
        self._buffer = memoryview(buffer)[:most]
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.first_byte is None:
            self.first_byte = self._buffer[0]
        if self.client is None:
            self._moved()
        if self._comes_early:
            self._early += bytes(self._buffer[:nbytes])
            self.feed()
        else:
            self._layer.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._layer.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._buffer = memoryview(b"")
        self._layer.connection_lost(exc)

    def pause_writing(self) -> None:
        self._full = True
        self._layer.pause_writing()
        if self.client is not None:
            self.client.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        self._layer.resume_writing()  # it may fill the socket again at once
        if self.client is not None and not self._full:
            self.client.resume_writing()


class TlsTransport(asyncio.Transport):
    """`upper` takes and gives plain bytes; `lower` is the socket."""

    def __init__(self, lower: asyncio.Transport, upper: asyncio.Transport) -> None:
        super().__init__()
        self._lower = lower
        self._upper = upper
        lower.set_write_buffer_limits(high=PAUSE_ABOVE_BYTES, low=0)
        upper.set_write_buffer_limits(high=_NEVER, low=0)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return self._upper.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._upper.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._upper.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        return self._upper.get_write_buffer_size() + self._lower.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._lower.set_write_buffer_limits(high=high, low=low)

    def is_reading(self) -> bool:
        return self._upper.is_reading()

    def pause_reading(self) -> None:
        self._upper.pause_reading()
        self._lower.pause_reading()

    def resume_reading(self) -> None:
        self._upper.resume_reading()
        self._lower.resume_reading()

    def can_write_eof(self) -> bool:
        return False  # TLS has no half of a connection

    def is_closing(self) -> bool:
        return self._upper.is_closing() or self._lower.is_closing()

    def close(self) -> None:
        self._lower.resume_reading()  # for the client's own goodbye
        self._upper.close()

    def abort(self) -> None:
        self._upper.abort()
