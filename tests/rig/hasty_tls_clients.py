"""`python -m tests.rig.hasty_tls_clients CERT KEY COUNT`: a TLS listener, and clients that break
their connection off right behind a whole ClientHello. In a process of its own: one that is not
written well ends it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from contextlib import suppress
from pathlib import Path

from keyway.tls.certificates import TlsFiles
from tests.rig.loopback import rig, run

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST


def client_hello() -> bytes:
    context = ssl.create_default_context()
    out = ssl.MemoryBIO()
    layer = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        layer.do_handshake()
    return out.read()


def break_off(port: int, hello: bytes, count: int) -> None:
    for at in range(count):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(hello)
            if at % 2:
                client.sendall(bytes(50))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def main(cert: str, key: str, count: int) -> None:
    files = TlsFiles(cert_file=Path(cert), key_file=Path(key))
    async with rig(tls=files) as gateway:
        port = gateway.server.addresses[1].port
        await asyncio.to_thread(break_off, port, client_hello(), count)
        _, writer = await asyncio.open_connection("127.0.0.1", port)  # it still takes some
        writer.close()


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
