"""The sockets that clients connect to."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from gateway.listen.limits import NOT_SENT_BYTES_MAX
from gateway.listen.listeners import listening_socket


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such bound")
def test_the_system_takes_no_more_than_its_part_for_a_client_that_reads_nothing() -> None:
    with listening_socket("127.0.0.1", 0, "of the test") as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            accepted.setblocking(False)
            taken = 0
            with suppress(BlockingIOError):
                while True:
                    taken += accepted.send(bytes(NOT_SENT_BYTES_MAX))
    assert taken < 2 * NOT_SENT_BYTES_MAX
