"""The output of `keyway distribute status`: the links of all clusters, from their status topics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaException

from clusters.config import ClustersConfig
from spark.kafka import KafkaSide
from spark.links import link_name
from spark.reports import now_ms
from spark.status import LEFT, LINK, TOPIC, Json, StatusTopic

STALE_MS = 30_000  # a running link says more often how it does


def links_of(config: ClustersConfig) -> list[Json]:
    """One object per link of the tree, with its topics and their partitions."""
    found: list[Json] = []
    kept: dict[str, dict[str, Json] | str] = {}
    for distributor in config.checked_tree().distributors:
        name = distributor.source
        if name not in kept:
            kept[name] = _status_of(config, name)
        records, link = kept[name], link_name(name, distributor.level)
        row: Json = {"link": link, "source": name, "level": distributor.level}
        if isinstance(records, str):
            found.append({**row, "state": "unknown", "error": records, "topics": {}})
            continue
        state = records.get(f"{LINK}/{link}", {"state": "never run", "target": None, "error": ""})
        late = now_ms() - int(state.get("updated_ms", 0)) > STALE_MS
        if state["state"] in ("running", "waiting") and late:
            at = datetime.fromtimestamp(state["updated_ms"] / 1_000, UTC)
            state = {**state, "state": "silent", "error": f"not heard of since {at:%F %T}Z"}
        prefix = f"{TOPIC}/{link}/"
        topics = {
            key.removeprefix(prefix): value
            for key, value in sorted(records.items())
            if key.startswith(prefix) and value.get("state") != LEFT
        }
        found.append({**row, **state, "topics": topics})
    return found


def _status_of(config: ClustersConfig, cluster: str) -> dict[str, Json] | str:
    """The status records of a cluster, or why they cannot be read."""
    side = KafkaSide(config.cluster(cluster))
    try:
        if not side.answers():
            return f"no answer at {side.cluster.bootstrap_servers}"
        if config.messages.status_topic not in side.topic_names():
            return {}
        return StatusTopic(side, config.messages.status_topic).read()
    except KafkaException as error:
        return str(error.args[0].str())


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
    "GAP",
    "REMARK",
)


def links_table(links: list[Json]) -> str:
    """Columns of text, a row per partition."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for link in links:
        head = (link["link"], link.get("target") or "-", link["state"])
        if not link["topics"]:
            rows.append((*head, *("-",) * 9, link["error"]))
        for name, topic in link["topics"].items():
            for partition, row in topic["partitions"].items() or {"-": {}}.items():
                rows.append(
                    (*head, name, *_cells(partition, row), topic["reason"] or link["error"])
                )
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cells(partition: str, row: dict[str, Any]) -> tuple[str, ...]:
    names = ("lag_records", "lag_s", "copied", "skipped", "repeats", "doubts", "gap")
    shown = [row.get(name, "-") for name in names]
    return (str(partition), *(f"{it:.1f}" if isinstance(it, float) else str(it) for it in shown))
