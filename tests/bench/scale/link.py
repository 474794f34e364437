"""A link's driver at its stated size, without Spark: the survey that begins a query, and the look
that repeats while nothing is to be copied. The link's positions are the ends of A's logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import cast

from pyspark.sql import SparkSession

from keyway.clusters.core.tree import ClusterName, Level
from spark.links.distribute import LinkRun
from spark.links.plan import Plan
from spark.links.switch import choose_target
from spark.streaming.core.survey import Position
from spark.streaming.limits import SURVEY_EVERY_S, SURVEY_EVERY_S_MAX, SURVEY_REST
from tests.bench.scale.figures import Figure, Size, resident_mib
from tests.bench.scale.topics import configured

SURVEY_S_MAX, AT_REST_PERCENT_MAX = 2.0, 5.0
LOOKS = 10
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
        yield Figure("the longest look at rest", longest, "s", SURVEY_S_MAX)
        yield Figure("CPU of a look at rest, mean", cpu, "s")
        yield Figure("CPU at rest, of one core", 100 * cpu / rest, "%", AT_REST_PERCENT_MAX)
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
    link.report.planned(plan.topics, plan.stopped, plan.target_ids, link._reached, {})
    return plan


def _looks(link: LinkRun, plan: Plan, count: int) -> tuple[float, float, float]:
    """The longest in seconds, the CPU of one, and the time from one look to the next, as the link
    would take it.
    """
    longest = total = 0.0
    spent = time.process_time()
    for _ in range(count):
        began = time.monotonic()
        assert not link._look(plan), "nothing has changed"
        took = time.monotonic() - began
        longest, total = max(longest, took), total + took
    cpu = (time.process_time() - spent) / count
    mean = total / count
    return longest, cpu, mean + min(max(SURVEY_EVERY_S, mean * SURVEY_REST), SURVEY_EVERY_S_MAX)
