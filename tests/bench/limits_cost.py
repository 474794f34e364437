"""The cost of limits that no client reaches: two gateways in front of one broker, one of them with
a rule for every client, take turns at sending each record in a request of its own.

The ratios of their CPU time are mostly noise, so one more row has the cost in the forwarding core
by itself, as a part of the CPU time that the smallest request takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.bucket import Bucket
from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.served_apis import rules
from tests.bench.cases import Bench
from tests.bench.metrics_cost import (
    PART,
    PRODUCED,
    RATIO,
    added_ns,
    cpu_ratios,
    cpu_spent,
    exchange_timed,
    part_row,
    produce_singly,
    smallest_exchange,
)
from tests.bench.rows import Row
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic

TOPIC = "bench-limits"
MUCH = 1_000_000_000  # a second
LIMITS: tuple[dict[str, Any], ...] = (
    {
        "name": "everybody",
        "per": "client_id",
        "connections": 1_000,
        "requests_per_s": MUCH,
        "bytes_in_per_s": MUCH,
        "bytes_out_per_s": MUCH,
        "share_sessions": 1_000,
    },
)
PRODUCE = "limits: a request per record, limited over not limited"
ALONE = "limits: an account, as a part of the smallest request"


def limits_cost(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    upstream = bench.kafka.bootstrap_servers
    create_topic(upstream, TOPIC)
    work = partial(produce_singly, topic=TOPIC)
    ratios: list[float] = []
    alone: list[float] = []
    with ExitStack() as stack:
        limited, free = (
            stack.enter_context(GatewayProcess(bench.directory / name, upstream, limits=limits))
            for name, limits in (("limited", LIMITS), ("not-limited", ()))
        )
        for gateway in (limited, free):  # the first run of a gateway is slower than all later
            cpu_spent(bench, gateway, work)
        for at in rounds:
            request_ns = cpu_spent(bench, free, work) * 1e9 / PRODUCED
            alone.append(account_alone_ns() / request_ns)
            ratios += cpu_ratios(bench, work, limited, free)
            sys.stdout.write(f"round {at + 1}  limits: median so far {median(ratios):.4f}\n")
    return [part_row(PRODUCE, RATIO, ratios, 4), part_row(ALONE, PART, alone, 4)]


def account_alone_ns() -> float:
    """CPU time that an account adds to a request and its answer in the forwarding core."""
    asked, answer = smallest_exchange()
    free, limited = (ConnectionState(rules([]), ApiCounts()) for _ in range(2))
    account = Account("everybody", "", *(Bucket(MUCH, 1) for _ in range(3)))
    limited.account = account
    added = added_ns(
        lambda: exchange_timed(free, asked, answer),
        lambda: exchange_timed(limited, asked, answer),
    )
    assert account.requests > 0
    assert account.muted == account.throttled_ms == 0, "a limit was reached"
    return added
