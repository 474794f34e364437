"""The output of `keyway distribute status`: the links of all clusters, from their status topics."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.clusters.core.tree import Distributor
from keyway.clusters.core.trust import CHECKSUM
from keyway.kafka.asking import Asking, Away
from keyway.service import wall_ms
from keyway.terminal.exits import Exit
from spark.links.link import link_name
from spark.links.status import LEFT, LINK, TOPIC, Json, StatusTopic
from spark.streaming.kafka import KafkaSide

STALE_MS = 30_000  # a running link says more often how it does


class Links:
    """The links of the tree, or one of them, and their topics, or one, as the status topics of the
    sources describe them. A second look fetches only new records. Raises ConfigError.
    """

    def __init__(
        self, config: ClustersConfig, link: str | None = None, topic: str | None = None
    ) -> None:
        named = {
            link_name(distributor.source, distributor.level): distributor
            for distributor in config.checked_tree().distributors
        }
        if link is not None and link not in named:
            raise ConfigError(f"no link {link}: there are {', '.join(named)}")
        self._distributors = [
            distributor for name, distributor in named.items() if link in (None, name)
        ]
        self._topic = topic
        sources = dict.fromkeys(distributor.source for distributor in self._distributors)
        self._asking = Asking({name: Source(config, name).records for name in sources})

    def look(self, *, within_s: float | None = None) -> list[Json]:
        """One object for each link, with its topics and their partitions. `within_s`: as in
        Asking.look.
        """
        kept = self._asking.look(within_s=within_s)
        return [
            link_row(distributor, kept[distributor.source], self._topic)
            for distributor in self._distributors
        ]


def exit_of(links: Collection[Json]) -> Exit:
    """AWAY if a cluster does not answer, REFUSED unless every link copies all of its topics."""
    states = {link["state"] for link in links}
    if "unknown" in states:
        return Exit.AWAY
    stopped = any(
        topic.get("state") == "stopped" for link in links for topic in link["topics"].values()
    )
    return Exit(int(stopped or not states <= {"running", "starting"}))


class Source:
    """A cluster whose records links copy."""

    def __init__(self, config: ClustersConfig, cluster: str) -> None:
        self._side = KafkaSide(config.cluster(cluster))
        self._topic = config.messages.status_topic
        self._status: StatusTopic | None = None

    def records(self) -> dict[str, Json] | Away:
        """The records of the cluster's status topic."""
        try:
            if not self._side.answers():
                return Away(f"no answer at {self._side.cluster.bootstrap_servers}")
            if self._topic not in self._side.topic_names():
                return {}
            if self._status is None:
                self._status = StatusTopic(self._side, self._topic)
            return self._status.read()
        except KafkaException as error:
            return Away(str(error.args[0].str()))


def link_row(
    distributor: Distributor, records: dict[str, Json] | Away, topic: str | None = None
) -> Json:
    """`topic`: show only this topic."""
    name, level = distributor.source, distributor.level
    link = link_name(name, level)
    row: Json = {"link": link, "source": name, "level": level}
    if isinstance(records, Away):
        return {**row, "state": "unknown", "error": records.reason, "topics": {}}
    state = records.get(f"{LINK}/{link}", {"state": "never run", "target": None, "error": ""})
    late = wall_ms() - int(state.get("updated_ms", 0)) > STALE_MS
    if state["state"] not in ("ended", "never run") and late:
        at = datetime.fromtimestamp(state["updated_ms"] / 1_000, UTC)
        state = {**state, "state": "silent", "error": f"not heard of since {at:%F %T}Z"}
    prefix = f"{TOPIC}/{link}/"
    topics = {
        key.removeprefix(prefix): value
        for key, value in sorted(records.items())
        if key.startswith(prefix)
        and value.get("state") != LEFT
        and topic in (None, key.removeprefix(prefix))
    }
    return {**row, **state, "topics": topics}


COLUMNS = (
    "LINK",
    "TARGET",
    "STATE",
    "TOPIC",
    "PARTITION",
    "LAG",
    "LAG-S",
    "COPIED",
    "SKIPPED",
    "REPEATS",
    "REJECTED",
    "REFUSED",
    "GAP",
    "REMARK",
)


def links_table(links: list[Json]) -> str:
    """The table's columns as text, a row for each partition."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for link in links:
        head = (link["link"], link.get("target") or "-", link["state"])
        if not link["topics"]:
            rows.append((*head, *("-",) * (len(COLUMNS) - 4), link["error"]))
        for name, topic in link["topics"].items():
            for partition, row in topic["partitions"].items() or {"-": {}}.items():
                rows.append(
                    (
                        *(*head, name, *_cells(partition, row)),
                        topic["reason"] or link["error"] or _remark(row),
                    )
                )
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    unkeyed = [link["link"] for link in links if link.get("seals") == str(CHECKSUM)]
    if unkeyed:
        lines.append(f"the seals of {', '.join(unkeyed)}: {CHECKSUM}, which any client can make")
    return "\n".join(lines)


def _remark(row: dict[str, Any]) -> str:
    at = row.get("open_at", -1)
    return f"waits for an open transaction at offset {at}" if at >= 0 else ""


def _cells(partition: str, row: dict[str, Any]) -> tuple[str, ...]:
    names = ("lag_records", "lag_s", "copied", "skipped", "repeats", "doubts", "left_out", "gap")
    shown = [row.get(name, "-") for name in names]
    return (
        str(partition),
        *(f"{value:.1f}" if isinstance(value, float) else str(value) for value in shown),
    )
