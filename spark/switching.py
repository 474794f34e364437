"""`keyway distribute switch`: it shows the window that the old target has not forwarded, and leaves
the order in the status topic, where the running link, or the next run, finds it.
"""

from __future__ import annotations

from clusters.config import ClustersConfig
from clusters.core.tree import ClusterName, Level
from spark.kafka import KafkaSide
from spark.links import Link
from spark.reports import LinkReport
from spark.status import SWITCH, Json, StatusTopic
from spark.switch import positions_of_link, unforwarded


def ask_for_switch(
    config: ClustersConfig, cluster: str, level: int, to: str, *, rewind: bool, execute: bool
) -> Json:
    """Raises ConfigError, TreeError, KafkaException; only with `execute` anything is changed."""
    tree = config.checked_tree().switched(ClusterName(cluster), Level(level), ClusterName(to))
    link = Link(tree.distributor(ClusterName(cluster), Level(level)), ClusterName(to))
    source = KafkaSide(config.cluster(cluster))
    status = StatusTopic(source, config.messages.status_topic)
    distributor = config.checked_tree().distributor(link.source, link.level)
    report = LinkReport(distributor, status)
    report.load()
    old = report.target
    positions = positions_of_link(config, link, report)
    windows = unforwarded(config, Link(distributor, link.target), source, positions, old)
    shown: Json = {
        "link": link.name,
        "from": old,
        "to": to,
        "rewind": rewind,
        "executed": execute,
        "unforwarded": [
            {
                "topic": topic,
                "partition": partition,
                "records": it.records,
                "first_offset": it.first,
                "compared_to_the_beginning": not it.cut,
            }
            for (topic, partition), it in sorted(windows.items())
        ],
    }
    if execute:
        wanted = {"target": to, "generation": report.generation + 1, "rewind": rewind}
        status.publish({f"{SWITCH}/{link.name}": wanted})
    return shown


def switch_text(shown: Json) -> str:
    """For people."""
    lines = [f"{shown['link']}: from {shown['from'] or 'no target'} to {shown['to']}"]
    lines += [
        f"  {row['topic']}-{row['partition']}: {row['records']} records, from offset"
        f" {row['first_offset']} on, are not on the rest of the subtree"
        for row in shown["unforwarded"]
    ]
    if not shown["unforwarded"]:
        lines.append("  everything that was copied is on the rest of the subtree")
    elif shown["rewind"]:
        lines.append(
            "  they are copied again; records that the old target forwards later arrive twice"
        )
    else:
        lines.append(
            "  they arrive there when the old target is back, behind newer ones; --rewind copies"
            " them again instead"
        )
    done = "the link switches within seconds" if shown["executed"] else "nothing done; --execute"
    return "\n".join([*lines, done])
