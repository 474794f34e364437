"""Random histories on real Kafkas, judged by reading both logs whole; and the history in which a
timestamp loses a record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keyway.clusters.core.copies import Stood, judge
from offsets.core.plan import Mode, Refusal
from tests.integration.offsets.conftest import Addresses
from tests.rig.offset_clusters import PlainLink, Services, commit, produce_at, write_config
from tests.rig.topic_contents import whole_partition

pytestmark = [pytest.mark.deep, pytest.mark.integration]
HISTORIES = int(os.environ.get("KEYWAY_TESTS_HISTORIES", "3"))  # in its campaign 20
Topic = Callable[..., str]
Origin = tuple[str, int]


def log_of(address: str, topic: str, name: str) -> list[tuple[int, Origin]]:
    """(offset, origin) of every record."""
    found = []
    for message in whole_partition(address, topic):
        offset, (_, timestamp) = message.offset(), message.timestamp()
        assert offset is not None
        headers: Any = message.headers() or []
        stood = Stood(topic, timestamp, message.key(), message.value())
        copy = judge(headers, stood).copy
        origin = (name, offset)
        if copy is not None:
            origin = (str(copy.origin.cluster), copy.origin.offset)
        found.append((offset, origin))
    return found


def history(pair: Addresses, topic: str, group: str, seed: int) -> None:
    random = Random(seed)
    links = [PlainLink((a, pair[a]), pair[b]) for a, b in ("AB", "BA")]
    now = time.time_ns() // 1_000_000 - 3_600_000
    made = 0
    for _ in range(random.randint(6, 12)):
        dice = random.random()
        if dice < 0.55:
            count, name = random.randint(1, 40), random.choice("AB")
            lines = [
                (now + random.randint(-5_000, 5_000) * random.randint(0, 1), b"%d" % (made + at))
                for at in range(count)
            ]
            made += count
            produce_at(pair[name], topic, lines)
        else:
            random.choice(links).copy(topic, records_max=random.randint(1, 50))
    commit(pair["A"], group, topic, random.randint(0, len(log_of(pair["A"], topic, "A"))))
    for link in links:
        link.close()


def test_nothing_is_skipped_and_no_more_repeated_than_said(
    pair: Addresses, both: Topic, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    made = {both(): (fresh_name("group"), seed) for seed in range(HISTORIES)}
    for topic, (group, seed) in made.items():
        history(pair, topic, group, seed)
    with Services.of(write_config(tmp_path, pair, mode="exact", apply=False)) as services:
        services.until(
            lambda: all(services.decided("B", group, name) for name, (group, _) in made.items()),
            what="all decided",
            deadline_s=120,
        )
        rows = {name: services.row("B", group, name) for name, (group, _) in made.items()}
    for topic, (_, seed) in made.items():
        row = rows[topic]
        assert row.refusals == (), f"seed {seed}"
        done = {value for at, value in log_of(pair["A"], topic, "A") if at < row.source_offset}
        target = log_of(pair["B"], topic, "B")
        skipped = {value for at, value in target if at < row.new} - done
        assert not skipped, f"seed {seed}: skipped"
        again = [value for at, value in target if at >= row.new and value in done]
        assert len(again) <= row.replay, f"seed {seed}: more repeats than said"


def test_the_outage_loses_a_record_by_timestamp_and_none_exactly(
    pair: Addresses, both: Topic, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A: a0@0 a1@10 a2@130, and B's records are 120 s late; B: b0@5 a0@0 b1@100 a1@10 a2@130.
    The group has processed a0 and a1.
    """
    topic, group = both(), fresh_name("group")
    base = 1_700_000_000_000
    link = PlainLink(("A", pair["A"]), pair["B"])
    for on, second in (("B", 5), ("A", 0), ("B", 100), ("A", 10), ("A", 130)):
        produce_at(pair[on], topic, [(base + second * 1_000, f"{on}{second}".encode())])
        link.copy(topic)
    commit(pair["A"], group, topic, 2)
    with Services.of(write_config(tmp_path, pair, mode="timestamp", apply=False)) as services:
        services.until(lambda: services.decided("B", group, topic), what="decided")
        row = services.row("B", group, topic)
        assert row.refusals == (Refusal.UNSAFE_ORIGINS,)
        assert row.new == 2, "T = 130 - 60 = 70: b1, so b0 would never be processed"
    with Services.of(write_config(tmp_path, pair, apply=False)) as services:
        services.until(lambda: services.decided("B", group, topic), what="decided")
        row = services.row("B", group, topic)
        assert (row.mode, row.new, row.replay, row.refusals) == (Mode.EXACT, 0, 2, ())
    link.close()
