"""What is known of a client connection from its bytes."""

from __future__ import annotations

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from gateway.listen.connection_facts import ConnectionFacts

FRAME = request_frame(ApiKey.API_VERSIONS, 3, 1, "payments", b"body")


@pytest.mark.parametrize("pieces", [[len(FRAME)], [4], [1] * 30, [13], [14, 3], [21], [22]])
def test_a_client_id_may_come_in_pieces(pieces: list[int]) -> None:
    """Some clients write the size of a request apart, and a line may cut anywhere."""
    facts, at, told = ConnectionFacts(), 0, []
    for size in [*pieces, len(FRAME)]:
        if at < len(FRAME):
            told.append(facts.received(FRAME[at : at + size]))
            at += size
    assert facts.client_id == "payments"
    assert told.count(True) == 1
    assert facts.bytes_in == len(FRAME)
    assert not facts.received(FRAME), "of the first request"
