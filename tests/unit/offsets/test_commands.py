"""`keyway offsets status` without Kafka: parts of it, and clusters that are away."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyway.clusters.config import ConfigError, load
from offsets.commands import Decisions, Status

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
