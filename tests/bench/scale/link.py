"""A link's driver at its stated size, without Spark: the survey that begins a query, and the look
that repeats while nothing is to be copied. The link's positions are the ends of A's logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from keyway.clusters.core.tree import ClusterName, Level
from spark.links.distribute import LinkRun
from spark.links.plan import Plan
from spark.links.switch import choose_target
from spark.streaming.core.survey import Position
from spark.streaming.limits import SURVEY_EVERY_S, SURVEY_EVERY_S_MAX, SURVEY_REST
from tests.bench.scale.figures import Figure, Size, resident_mib
from tests.bench.scale.topics import STEP_S_MAX, configured, topic_of

LOOK_S_MAX, PERCENT_MAX = 2.0, 5.0
LOOKS = 10
BUSY = 100
LOOKS_FOR_MEMORY = 120  # at 15 s from one to the next they are half an hour
GROWTH_MIB_MAX = 16.0


def measure(size: Size, clusters: dict[str, str]) -> Iterator[Figure]:
    with configured(clusters) as config:
        distributor = config.checked_tree().distributor(ClusterName("A"), Level(1))
        link = LinkRun(cast(SparkSession, None), config, distributor, threading.Event())
        began = time.monotonic()
        plan = _begun(link)
        assert len(plan.places()) == size.topics * size.partitions, plan.stopped
        yield Figure("the survey that begins a query", time.monotonic() - began, "s")
        longest, cpu, rest = _looks(link, plan, LOOKS)
        yield Figure("the longest look at rest", longest, "s", LOOK_S_MAX)
        yield Figure("CPU of a look at rest, mean", cpu, "s")
        yield Figure("CPU at rest, of one core", 100 * cpu / rest, "%", PERCENT_MAX)
        longest, cpu, rest = _looks(link, plan, LOOKS, _Sending(link, size))
        yield Figure(f"the longest look while {BUSY} topics get records", longest, "s", LOOK_S_MAX)
        yield Figure("CPU of such a look, mean", cpu, "s")
        yield Figure("CPU of such looks, of one core", 100 * cpu / rest, "%", PERCENT_MAX)
        before = resident_mib()
        yield Figure("memory of the process", before, "MiB")
        _looks(link, plan, LOOKS_FOR_MEMORY)
        more = resident_mib() - before
        yield Figure(f"more memory after {LOOKS_FOR_MEMORY} looks", more, "MiB", GROWTH_MIB_MAX)


def _begun(link: LinkRun) -> Plan:
    """As a round of the link begins, with positions at the ends of the logs."""
    link.report.load()
    link._link = choose_target(link.config, link.distributor, link._source, link.report)
    link._aim()
    surveyed = link._survey()
    ends = link._source.log_ends(surveyed.places())
    stand = {
        (surveyed.targets[name], partition): Position(end, surveyed.topics[name].topic_id)
        for (name, partition), end in ends.items()
    }
    link._target.set_positions(link._link.group, stand)
    link._starts_at, plan = link._starts(surveyed)
    reached = link._epochs.positions(link._reached)
    link.report.planned(plan.topics, plan.stopped, plan.target_ids, reached, {})
    return plan


class _Sending:
    """Records that reach the source between two looks, in topics that the link copies."""

    def __init__(self, link: LinkRun, size: Size) -> None:
        self._at_work = link._at_work = {
            topic_of(number) for number in range(min(BUSY, size.topics))
        }
        self._link, self._partitions = link, size.partitions
        self._producer = Producer({**link._source.settings, "linger.ms": 50})

    def __call__(self) -> None:
        for name in sorted(self._at_work):
            for partition in range(self._partitions):
                self._producer.produce(name, b"", partition=partition)
        assert self._producer.flush(STEP_S_MAX) == 0, "records were not taken in time"
        self._link._at_work = set(self._at_work)


def _looks(
    link: LinkRun, plan: Plan, count: int, meanwhile: Callable[[], None] = lambda: None
) -> tuple[float, float, float]:
    """The longest in seconds, the CPU of one, and the time from one look to the next, as the link
    would take it. What happens `meanwhile` is not counted.
    """
    longest = total = spent = 0.0
    for _ in range(count):
        meanwhile()
        began, spent_before = time.monotonic(), time.process_time()
        assert not link._look(plan), "nothing has changed"
        took = time.monotonic() - began
        longest, total = max(longest, took), total + took
        spent += time.process_time() - spent_before
    cpu = spent / count
    mean = total / count
    return longest, cpu, mean + min(max(SURVEY_EVERY_S, mean * SURVEY_REST), SURVEY_EVERY_S_MAX)
