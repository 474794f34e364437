"""`keyway distribute switch` shows the records that the old target has not forwarded, and leaves
the order in the status topic. The running link, or its next run, finds it there.
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.tree import ClusterName, Level
from keyway.service import wall_ms
from keyway.terminal.progress import Step, no_step
from spark.links.link import Link
from spark.links.naming import following
from spark.links.reports import LinkReport
from spark.links.status import SWITCH, Json, StatusTopic
from spark.links.switch import Standing, standing
from spark.links.unforwarded import Windows, compare_into, subtree_now
from spark.streaming.kafka import KafkaSide


def ask_for_switch(
    config: ClustersConfig,
    cluster: str,
    level: int,
    to: str,
    *,
    rewind: bool,
    execute: bool,
    step: Step = no_step,
) -> Json:
    """Raises ConfigError, TreeError, KafkaException; only with `execute` anything is changed, and
    before the old target is asked and the records are compared: an outage does not wait.
    """
    tree = config.checked_tree().switched(ClusterName(cluster), Level(level), ClusterName(to))
    link = Link(tree.distributor(ClusterName(cluster), Level(level)), ClusterName(to))
    source = KafkaSide(config.cluster(cluster))
    status = StatusTopic(source, config.messages.status_topic)
    distributor = config.checked_tree().distributor(link.source, link.level)
    report = LinkReport(distributor, status)
    if execute or status.exists():  # else the link has never run
        report.load()
    old = report.target
    logical = {
        follow.logical
        for follow in following(config, source.cluster, config.cluster(to), report.topics())
    }
    to_others = Link(distributor, link.target)
    # Before the order: what the link copies then does not count.
    subtree = subtree_now(config, to_others, old, logical)
    if execute:
        wanted = {
            "target": to,
            "generation": max(report.generation + 1, wall_ms()),
            "rewind": rewind,
        }
        status.publish({f"{SWITCH}/{link.name}": wanted})
    windows, stand, problem = Windows(), Standing({}, frozenset(), {}), ""
    try:
        stand = standing(config, link, source, report)
        compare_into(windows, to_others, source, stand.compared(), subtree, config, step)
    except KafkaException as error:
        problem = error.args[0].str()
    return {
        "link": link.name,
        "from": old,
        "to": to,
        "rewind": rewind,
        "executed": execute,
        "unforwarded": [
            {
                "topic": topic,
                "partition": partition,
                "records": window.records,
                "first_offset": window.first,
            }
            for (topic, partition), window in sorted(windows.found.items())
        ],
        "left_out": dict(sorted((stand.left_out | windows.failed).items())),
        "positions_as_reported": stand.unasked,
        "problem": problem,
    }


def switch_text(shown: Json) -> str:
    """The same as text, for people."""
    lines = [f"{shown['link']}: from {shown['from'] or 'no target'} to {shown['to']}"]
    lines += [
        f"  {row['topic']}-{row['partition']}: {row['records']} records, from offset"
        f" {row['first_offset']} on, are not on the rest of the subtree"
        for row in shown["unforwarded"]
    ]
    lines += [f"  {topic}: left out, {why}" for topic, why in shown["left_out"].items()]
    if shown["positions_as_reported"]:
        lines.append(
            f"  the link goes by the positions it has reported last, up to a second old:"
            f" {shown['positions_as_reported']}"
        )
    if shown["problem"]:
        lines.append(f"  the others were not compared: {shown['problem']}")
    elif not shown["unforwarded"]:
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
