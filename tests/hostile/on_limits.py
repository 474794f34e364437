"""A tenant that asks for more than its rule of `limits` allows, beside others whom it must not cost
anything.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from gateway.core.wire.apis import ApiKey
from tests.hostile.target import Target, connected, frame

REQUESTS_PER_S = 200
LINES = 4
IN_FLIGHT = 4  # on each line
BATCH_BYTES = 10_000
LIMITS: tuple[dict[str, Any], ...] = (
    {
        "name": "tenant",
        "client_id": "attacker",  # of its frames
        "requests_per_s": REQUESTS_PER_S,
        "connections": LINES,
    },
)
DEMAND_MIN = 2.0  # times its limit
PASSED_MAX = 1.1
ANSWER_S_MAX = 30.0


@dataclass(slots=True)
class _Line:
    """A connection that sends one more request with each answer."""

    line: socket.socket
    sent: bytes
    _came: bytearray = field(default_factory=bytearray)

    def go_on(self) -> int:
        """How many answers came."""
        data = self.line.recv(1 << 16)
        assert data, "the node closed a connection of the tenant"
        self._came += data
        count = 0
        while len(self._came) >= 4 + (size := int.from_bytes(self._came[:4], "big")):
            del self._came[: 4 + size]
            count += 1
        self.line.sendall(self.sent * count)
        return count


def tenant_beyond_its_limit(target: Target, seconds: float) -> str:
    """Producers that ignore throttle_time_ms. One second's worth is free: the speed at which the
    tenant uses it up is its demand, which has to be twice its limit. Later it gets the limit.
    """
    lines = [_Line(connected(target.broker), _produce(target.topic)) for _ in range(LINES)]
    answered, burst_s = 0, 0.0
    began = time.monotonic()
    with selectors.DefaultSelector() as ready:
        for tenant in lines:
            ready.register(tenant.line, selectors.EVENT_READ, tenant)
            tenant.line.sendall(tenant.sent * IN_FLIGHT)
        while time.monotonic() < began + seconds:
            came = ready.select(timeout=ANSWER_S_MAX)
            assert came, f"no answer in {ANSWER_S_MAX:.0f} s"
            answered += sum(key.data.go_on() for key, _ in came)
            if not burst_s and answered >= REQUESTS_PER_S:
                burst_s = time.monotonic() - began
    took_s = time.monotonic() - began
    for tenant in lines:
        tenant.line.close()
    assert burst_s, f"{answered} answers in {took_s:.1f} s"
    demand, passed = REQUESTS_PER_S / burst_s, (answered - REQUESTS_PER_S) / took_s
    told = f"{REQUESTS_PER_S} requests/s allowed, {demand:.0f} asked for, {passed:.0f} passed"
    assert demand >= DEMAND_MIN * REQUESTS_PER_S, told
    assert passed <= PASSED_MAX * REQUESTS_PER_S, told
    return told


def _produce(topic: str) -> bytes:
    """A Produce request of one record that wants an answer."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2 * BATCH_BYTES,
    )
    builder.append(0, None, b"k", bytes(BATCH_BYTES), [])
    rows = [{"Index": 0, "Records": bytes(builder.build())}]
    topics = [{"Name": topic, "PartitionData": rows}]
    body = {"Acks": 1, "TimeoutMs": 30_000, "TopicData": topics}
    return frame(ApiKey.PRODUCE, 11, body)
