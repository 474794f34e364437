"""The cost of the metrics of clients' requests: two gateways in front of one broker, which differ
in nothing else, take turns at the same work. CPU time of each, and their ratio round by round.

The work: share consumption as in the keyed case; and a producer that sends each record in a request
of its own, where a request is as cheap for the gateway as it can be. The ratios are mostly noise:
the CPU time of equal runs differs by a tenth. So three more rows have the cost in the forwarding
core by itself, as a part of the CPU time that requests take: that of timing, with two looks at the
clock, in both works, and that of bytes by topic in the second.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from statistics import median

import psutil
from confluent_kafka import Producer

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.embedded.process import start_child
from tests.bench.cases import KEYS, PARTITIONS, Bench, finish, rate
from tests.bench.cost import cpu_s
from tests.bench.load import drawn, load
from tests.bench.rows import Row
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.operating import metrics
from tests.rig.wire_frames import request, response

CONSUMED = 200_000  # records of a run
PRODUCED = 20_000
TOPIC, PRODUCED_TO = "bench-metrics", "bench-metrics-produced"
RECORD_BYTES = 70  # a batch of one record of two bytes
CORE_TURNS, EXCHANGES = 100, 1_000  # in the forwarding core alone
TURNS = 6  # of each gateway in a round
CONSUME = "metrics: share consumption, timed over untimed"
PRODUCE = "metrics: a request per record, timed over untimed"
ALONE = "metrics: timing, as a part of the smallest request"
CONSUMED_ALONE = "metrics: timing, as a part of share consumption"
COUNTED = "metrics: bytes by topic, as a part of the smallest request"
RATIO = "CPU ratio"
PART = "of its CPU"
_numbers = itertools.count(1)

Work = Callable[[Bench, str], None]


class UntimedGateway(GatewayProcess):
    def spawn(self) -> None:
        command = [sys.executable, "-m", "tests.bench.untimed_node", "serve"]
        self.child = start_child(
            [*command, "--config", str(self.config)],
            log=self.log,
            cwd=REPOSITORY,
            env=dict(os.environ),
        )


def metrics_cost(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    create_topic(bench.kafka.bootstrap_servers, TOPIC, partitions=PARTITIONS)
    create_topic(bench.kafka.bootstrap_servers, PRODUCED_TO)
    load(bench.kafka.bootstrap_servers, TOPIC, drawn(CONSUMED, KEYS))
    ratios: dict[str, list[float]] = {CONSUME: [], PRODUCE: []}
    works: dict[str, Work] = {CONSUME: _consume, PRODUCE: produce_singly}
    alone: dict[str, list[float]] = {CONSUMED_ALONE: [], ALONE: [], COUNTED: []}
    with ExitStack() as stack:
        groups = [{"match": "*", "auto_offset_reset": "earliest"}]
        upstream = bench.kafka.bootstrap_servers
        timed, untimed = (
            stack.enter_context(kind(bench.directory / name, upstream, groups=groups))
            for kind, name in ((GatewayProcess, "timed"), (UntimedGateway, "untimed"))
        )
        for work in works.values():  # the first run of a gateway is slower than all later
            for gateway in (timed, untimed):
                cpu_spent(bench, gateway, work)
        for at in rounds:
            request_ns = cpu_spent(bench, untimed, produce_singly) * 1e9 / PRODUCED
            timing_ns = timing_alone_ns()
            alone[CONSUMED_ALONE].append(timing_ns / _consumed_ns(bench, timed))
            alone[ALONE].append(timing_ns / request_ns)
            alone[COUNTED].append(counting_alone_ns() / request_ns)
            for name, work in works.items():
                ratios[name] += cpu_ratios(bench, work, timed, untimed)
                shown = f"{median(ratios[name]):.4f}"
                sys.stdout.write(f"round {at + 1}  {name}: median so far {shown}\n")
    found = [part_row(name, RATIO, values, 4) for name, values in ratios.items()]
    return found + [part_row(name, PART, values, 4) for name, values in alone.items()]


def part_row(name: str, unit: str, values: list[float], digits: int) -> Row:
    low, high = round(min(values), digits), round(max(values), digits)
    return Row(name, unit, round(median(values), digits), low, high, None, None)


def cpu_ratios(
    bench: Bench, work: Work, ours: GatewayProcess, other: GatewayProcess
) -> list[float]:
    """Ours over the other's, of neighbouring runs; each gateway is first as often as the other."""
    found = []
    for turn in range(TURNS):
        spent = {}
        for gateway in (ours, other) if turn % 2 == 0 else (other, ours):
            spent[gateway] = cpu_spent(bench, gateway, work)
        found.append(spent[ours] / spent[other])
    return found


def cpu_spent(bench: Bench, gateway: GatewayProcess, work: Work) -> float:
    """CPU seconds of the gateway for the work."""
    process = psutil.Process(gateway.pid)
    before = cpu_s(process)
    work(bench, gateway.bootstrap)
    return cpu_s(process) - before


def _consumed_ns(bench: Bench, timed: GatewayProcess) -> float:
    """CPU time of share consumption per request."""
    before = _requests(timed)
    spent = cpu_spent(bench, timed, _consume)
    return spent * 1e9 / (_requests(timed) - before)


def _requests(gateway: GatewayProcess) -> float:
    counts = "keyway_server_request_seconds_count"
    return sum(value for name, value in metrics(gateway).items() if name.startswith(counts))


def _consume(bench: Bench, bootstrap: str) -> None:
    command = [
        *(sys.executable, "-m", "tests.bench.librdkafka_consume", "share", bootstrap),
        *(f"bench-metrics-{next(_numbers)}", TOPIC, str(CONSUMED), str(int(bench.run_s_max))),
        f"max.poll.records={bench.max_poll_records}",
    ]
    rate(finish(bench, command), CONSUMED)


def produce_singly(bench: Bench, bootstrap: str, topic: str = PRODUCED_TO) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "acks": 1,
            "log_level": 3,
        }
    )
    for _ in range(PRODUCED):
        producer.produce(topic, b"v", b"k")
        producer.poll(0)
    assert producer.flush(bench.run_s_max) == 0, "records unsent"


def timing_alone_ns() -> float:
    """CPU time that timing adds to a request and its answer in the forwarding core, with the looks
    at the clock.
    """
    asked, answer = smallest_exchange()
    counts = ApiCounts()
    state = ConnectionState(rules([]), counts)
    added = added_ns(
        lambda: _exchange_untimed(state, asked, answer),
        lambda: exchange_timed(state, asked, answer),
    )
    assert sum(counts.times[ApiKey.PRODUCE].buckets) == CORE_TURNS * EXCHANGES
    return added


def counting_alone_ns() -> float:
    """CPU time that bytes by topic add to the same. Nothing is counted for a client that has yet to
    authenticate.
    """
    asked, answer = smallest_exchange()
    counts = ApiCounts()
    counts.topics.name(PRODUCED_TO, bytes(16))
    uncounted = ConnectionState(rules([], sasl=True), counts)
    counted = ConnectionState(rules([]), counts)
    added = added_ns(
        lambda: _exchange_untimed(uncounted, asked, answer),
        lambda: _exchange_untimed(counted, asked, answer),
    )
    assert counts.topics.take() == ([(PRODUCED_TO, CORE_TURNS * EXCHANGES * RECORD_BYTES)], [])
    return added


def smallest_exchange() -> tuple[bytes, bytes]:
    """A request of one small record that asks for an answer, and this answer."""
    partition = {"Index": 0, "Records": bytes(RECORD_BYTES)}
    topic = {"Name": PRODUCED_TO, "PartitionData": [partition]}
    took = {"Name": PRODUCED_TO, "PartitionResponses": [{"Index": 0}]}
    return (
        request(ApiKey.PRODUCE, 11, {"Acks": 1, "TopicData": [topic]}),
        response(ApiKey.PRODUCE, 11, {"Responses": [took]}),
    )


def added_ns(without: Callable[[], None], including: Callable[[], None]) -> float:
    """To each of EXCHANGES: the median over turns."""
    added = []
    for _ in range(CORE_TURNS):
        before = time.thread_time_ns()
        without()
        between = time.thread_time_ns()
        including()
        after = time.thread_time_ns()
        added.append((after - between - (between - before)) / EXCHANGES)
    return median(added)


def _exchange_untimed(state: ConnectionState, asked: bytes, answer: bytes) -> None:
    for _ in range(EXCHANGES):
        state.from_client(asked)
        state.from_upstream(answer)


def exchange_timed(state: ConnectionState, asked: bytes, answer: bytes) -> None:
    for _ in range(EXCHANGES):
        state.from_client(asked, time.monotonic_ns())
        state.from_upstream(answer, time.monotonic_ns())
