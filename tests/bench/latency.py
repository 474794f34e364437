"""Added latency: from `produce()` to the application, through the gateway over direct.

One steady producer writes to Kafka itself on all sides; the consumer is librdkafka's share consumer
through the gateway, and its plain consumer on Kafka. The same share consumer on a share group of
Kafka's own shows how much of it is the share protocol's: one that fetches again only when it has
worked on its records, where a plain consumer always has a fetch out. All settings are the clients'
defaults, so every side contains the producer's 5 ms of linger. Every run has a topic of its own,
and starts when its consumer has shown that it gets records. Records produced around a freeze of
the machine (freezes.py) are consumed, but not judged, on all sides alike.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from statistics import median

from gateway.embedded.process import start_child, stop_child, wait_until
from tests.bench.cases import KEYS, PARTITIONS, Bench
from tests.bench.freezes import FreezeWatch, Span, undisturbed
from tests.bench.latency_consume import PROBE
from tests.bench.rows import Row, added, percentile, rows_of
from tests.rig.gateway_process import REPOSITORY
from tests.rig.kafka import create_topic, produce, set_group_config

PER_SECOND = 50_000
GRACE_S = 20.0  # for a consumer that fell behind to get the rest
SHARES = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
STATISTICS = ("p50", "p99")
# Runs of each side before the first round. The broker's compiler takes a core for a minute under
# this load, which the side with the most processes feels most: of five rounds after one such run,
# Keyway's p99 was 400, 120, 39, 37 and 41 ms.
WARM_UPS = 3
SIDES = {
    "direct": ("plain", False),
    "Kafka share group": ("share", False),
    "Keyway": ("share", True),
}
# The producer that cannot keep its rate would make latencies of a smaller load.
RATE_SHARE_MIN = 0.97
# 5 ms of linger and some of queueing; three times that is somebody else's load.
DIRECT_P99_MS_MAX = 50.0
JUDGED_SHARE_MIN = 0.3  # of the judged records of a run, outside freezes
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Load:
    """The work of the producer in one run; the bar is meant at the defaults."""

    per_second: int = PER_SECOND
    warmup_s: float = 2.0  # not judged
    judged_s: float = 6.0

    @property
    def seconds(self) -> float:
        return self.warmup_s + self.judged_s

    @property
    def records(self) -> int:
        return int(self.per_second * self.seconds)


def added_at(per_second: int, side: str = "Keyway") -> str:
    return f"latency added by {side} at {per_second:,} records/s"


def latency(bench: Bench, rounds: Iterable[int], load: Load) -> list[Row]:
    """p50 and p99 of all sides, and their distance from the direct one. Raises AssertionError if a
    side lost records, the producer could not keep its rate, or the machine stood still too often.

    The distance is left out where the direct consumer's own p99 is far from that of a machine with
    time to spare: the difference of two such figures says nothing.
    """
    names = list(SIDES)
    samples: dict[str, list[float]] = {
        f"latency {side}: {statistic}": [] for statistic in STATISTICS for side in names
    }
    warm_up = replace(load, warmup_s=0.0)
    for side in WARM_UPS * names:
        run_once(bench, warm_up, *_side(bench, side))
    for at in rounds:
        for side in names if at % 2 == 0 else reversed(names):
            found = run_once(bench, load, *_side(bench, side))
            for statistic in STATISTICS:
                samples[f"latency {side}: {statistic}"].append(found[statistic])
            figures = ", ".join(f"{name} {found[name]:.2f}" for name in SHARES)
            judged = f"{found['judged']:.0%} judged"
            sys.stdout.write(f"round {at + 1}  latency {side}: {figures} ms, {judged}\n")
    more = {
        f"{added_at(load.per_second, side)}: {statistic}": added(
            samples[f"latency {side}: {statistic}"], samples[f"latency direct: {statistic}"]
        )
        for side in names[1:]
        for statistic in STATISTICS
    }
    direct = median(samples["latency direct: p99"])
    if direct > DIRECT_P99_MS_MAX:
        sys.stdout.write(
            f"too busy to judge the added latency: the direct p99 is {direct:.0f} ms\n"
        )
        more = {}
    pairs: dict[str, tuple[str, ...]] = {
        f"latency Keyway: {statistic}": tuple(f"latency {side}: {statistic}" for side in names[:-1])
        for statistic in STATISTICS
    }
    return rows_of(samples | more, pairs, unit="ms", digits=2)


def _side(bench: Bench, side: str) -> tuple[str, str]:
    """Kind of consumer, and its server."""
    kind, through = SIDES[side]
    return kind, bench.bootstrap(through=through)


@dataclass(slots=True)
class Run:
    """The ages of one run's judged records; they are there when it is over."""

    stamps: Sequence[int] = ()  # monotonic clock at `produce()`, in ns
    ages: Sequence[int] = ()  # ns
    frozen: Sequence[Span] = ()

    def figures(self, since_ns: int = 0, until_ns: int = 2**63) -> dict[str, float]:
        """Ages in ms by the names of SHARES of the records produced in that time, and the share of
        them that is judged ("judged"). Raises AssertionError if that is too small.
        """
        within = [since_ns <= stamp < until_ns for stamp in self.stamps]
        stamps = list(compress(self.stamps, within))
        assert stamps, "no record was produced"
        kept = sorted(undisturbed(stamps, list(compress(self.ages, within)), self.frozen))
        judged = len(kept) / len(stamps)
        assert judged >= JUDGED_SHARE_MIN, f"the machine stood still {len(self.frozen)} times"
        return {name: percentile(kept, share) / 1e6 for name, share in SHARES.items()} | {
            "judged": judged
        }


def run_once(
    bench: Bench, load: Load, kind: str, bootstrap: str, produce_to: str | None = None
) -> dict[str, float]:
    """`Run.figures` of all judged records."""
    with running(bench, load, kind, bootstrap, produce_to) as run:
        pass
    return run.figures()


@contextmanager
def running(
    bench: Bench, load: Load, kind: str, bootstrap: str, produce_to: str | None = None
) -> Iterator[Run]:
    """The block runs while the records come; its end waits for all of them. `produce_to`: the
    producer's server; None: Kafka itself.
    """
    number = next(_numbers)
    topic = f"bench-latency-{number}"
    upstream = bench.kafka.bootstrap_servers
    create_topic(upstream, topic, partitions=PARTITIONS)
    if kind == "share" and bootstrap == upstream:
        set_group_config(upstream, f"group-{topic}", {"share.auto.offset.reset": "earliest"})
    log = bench.directory / f"latency-{number}.log"
    producer_log = bench.directory / f"latency-{number}-producer.log"
    file = bench.directory / f"latency-{number}.ages"
    module = [sys.executable, "-m"]
    run = Run()
    with ExitStack() as ending:
        consumer = start_child(
            [
                *(*module, "tests.bench.latency_consume", kind, bootstrap, f"group-{topic}", topic),
                *(str(load.records), str(load.warmup_s), str(load.seconds + 2 * GRACE_S)),
                str(file),
            ],
            log=log,
            cwd=REPOSITORY,
        )
        ending.callback(stop_child, consumer)
        produce(upstream, topic, [(b"probe", PROBE)])
        wait_until(lambda: bool(_said(log, "ready")), what="consumer ready", deadline_s=GRACE_S)
        arguments = [topic, str(load.per_second), str(load.seconds), str(KEYS)]
        with FreezeWatch() as watch:
            producer = start_child(
                [*module, "tests.bench.latency_produce", produce_to or upstream, *arguments],
                log=producer_log,
                cwd=REPOSITORY,
            )
            ending.callback(stop_child, producer)
            yield run
            assert producer.wait(load.seconds + GRACE_S) == 0, producer_log.read_text()
            consumer.wait(GRACE_S)
        _, sent, _, taken = _said(producer_log, "records ").split()
        rate = int(sent) / float(taken)
        assert rate >= load.per_second * RATE_SHARE_MIN, f"only {rate:,.0f} records/s produced"
        came = int(_said(log, "records ").split()[1])
    assert came >= load.records, f"only {came:,} of {load.records:,} came"
    columns = array("q", file.read_bytes())
    count = len(columns) // 2
    run.stamps, run.ages, run.frozen = columns[:count], columns[count:], watch.spans()


def _said(log: Path, begin: str) -> str:
    """The line of the log that begins so; empty if there is none yet."""
    lines = log.read_text().splitlines() if log.exists() else []
    return next((line for line in lines if line.startswith(begin)), "")
