"""`keyway offsets status` without Kafka: parts of it, and clusters that are away."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyway.clusters.config import ConfigError, load
from keyway.service import wall_ms
from offsets.commands import Decisions, Status, _read
from offsets.limits import SILENT_MS
from offsets.state_topic import StateTopic
from tests.rig.offsets_in_memory import MemoryClient

TWO = """
clusters:
  - {name: a, bootstrap_servers: "127.0.0.1:1"}
  - {name: b, bootstrap_servers: "127.0.0.1:1"}
tree: {level: 1, children: [a, b]}
"""


@pytest.mark.parametrize(
    ("group", "topic", "expected"),
    [(None, None, "0123"), ("g", None, "01"), (None, "t", "02"), ("h", "u", "3"), ("x", "t", "")],
)
def test_rows_of_a_group_and_of_a_topic(
    group: str | None, topic: str | None, expected: str
) -> None:
    places = ("gt", "gu", "ht", "hu")
    rows = tuple(
        {"group": place[0], "topic": place[1], "at": at} for at, place in enumerate(places)
    )
    found = Status(rows, ("b: away",)).of(group, topic)
    assert "".join(str(row["at"]) for row in found.rows) == expected
    assert found.away == ("b: away",)


def test_only_the_cluster_that_is_named_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(TWO)
    config = load(path)
    for cluster, asked in ((None, ["a", "b"]), ("b", ["b"])):
        found = Decisions(config, cluster).look(within_s=0.1)
        assert found.away == tuple(f"{name}: no answer yet, after 0.1 s" for name in asked)
    with pytest.raises(ConfigError, match="no cluster z: there are a, b"):
        Decisions(config, "z")


@pytest.mark.parametrize(
    ("age_ms", "problem", "expected"),
    [
        (0, "", ""),
        (
            0,
            "__consumer_offsets: not authorised",
            "its service waits: __consumer_offsets: not auth",
        ),
        (SILENT_MS + 1, "", "its service has not been heard of since 20"),
    ],
)
def test_a_service_that_does_not_work_is_told_of(age_ms: int, problem: str, expected: str) -> None:
    """The decisions of a service that had been killed stood there, and `status` ended with 0."""
    state_topic = StateTopic(MemoryClient("b", now_ms=0))
    assert _read(state_topic) == ([], ""), "of earlier versions nothing is known"
    state_topic.write_beat(wall_ms() - age_ms, problem)
    found = _read(state_topic)
    assert isinstance(found, tuple)
    rows, trouble = found
    assert rows == []
    assert trouble.startswith(expected)
    assert bool(trouble) is bool(expected)
