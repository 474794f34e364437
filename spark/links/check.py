"""The checks of `keyway distribute check`: every cluster answers, has the right id and permits the
work of its links, and every topic can be kept alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.tree import ClusterName, Leaf, Node, OneClusterTwice, Tree
from keyway.clusters.core.tree import require_different_clusters as require_different
from keyway.clusters.core.trust import CHECKSUM
from keyway.kafka.transactions import opened
from keyway.terminal.progress import Step, no_step
from spark.links.beginning import policy_of
from spark.links.link import Link, link_name
from spark.links.naming import following
from spark.streaming.core.survey import Missing, Stopped, compare
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import ANSWER_S, QUIET


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fault`: it keeps records from being distributed."""

    where: str
    text: str
    fault: bool = False

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def tree_text(tree: Tree) -> str:
    """The tree, its links, and every hop of a record of each cluster."""
    links = [
        f"link {link_name(distributor.source, distributor.level)}:"
        f" to {' or '.join(distributor.targets)}"
        for distributor in tree.distributors
    ]
    lines = [*_drawn(tree.root, "", ""), "", *links, ""]
    for origin in tree.clusters:
        hops = [f"{hop.source} to {hop.target} (level {hop.level})" for hop in tree.hops(origin)]
        lines.append(f"a record of {origin} is copied from {', from '.join(hops)}")
    return "\n".join(lines)


def _drawn(node: Node, first: str, rest: str) -> Iterator[str]:
    if isinstance(node, Leaf):
        yield f"{first}{node.name}"
        return
    targets = f" (takes records at {' or '.join(node.targets)})" if node.targets else ""
    yield f"{first}level {node.level}{targets}"
    for at, child in enumerate(node.children):
        last = at == len(node.children) - 1
        yield from _drawn(
            child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )


def check_clusters(config: ClustersConfig, step: Step = no_step) -> list[Finding]:
    """Asks every cluster; one that does not answer is a finding, not an error."""
    found = [_seals_finding(config)]
    sides: dict[ClusterName, KafkaSide] = {}
    ids: dict[ClusterName, str] = {}
    for cluster in config.clusters:
        name, side = ClusterName(cluster.name), KafkaSide(cluster)
        step(f"asking {name}")
        if not side.answers():
            text = f"no answer at {cluster.bootstrap_servers}"
            found.append(Finding(name, text, fault=True))
            continue
        sides[name], ids[name] = side, side.cluster_id()
        wrong = cluster.cluster_id not in (None, ids[name])
        expected = f", {cluster.cluster_id} is expected" if wrong else ""
        found.append(Finding(name, f"answers; cluster id {ids[name]}{expected}", fault=wrong))
    try:
        require_different(ids)
    except OneClusterTwice as error:
        found.append(Finding("tree", str(error), fault=True))
    for distributor in config.checked_tree().distributors:
        for target in distributor.targets:
            if distributor.source in sides and target in sides:
                link = Link(distributor, target)
                source, to = sides[distributor.source], sides[target]
                step(f"looking at {link.name} to {target}")
                found += _link_findings(config, link, source, to)
    return found


def _seals_finding(config: ClustersConfig) -> Finding:
    try:
        seals = config.seals()
    except ConfigError as error:
        return Finding("seals", str(error), fault=True)
    if not seals.secrets:
        return Finding("seals", f"{CHECKSUM}, which any client can make; see seal_secret_env")
    more = f", by the first of {len(seals.secrets)} secrets" if len(seals.secrets) > 1 else ""
    if seals.checksums:
        more += "; checksums are believed, too, which any client can make"
    return Finding("seals", f"{seals}{more}")


def _link_findings(
    config: ClustersConfig, link: Link, source: KafkaSide, target: KafkaSide
) -> Iterator[Finding]:
    where = f"{link.name} to {link.target}"
    try:
        if config.messages.delivery == "exactly_once":
            _try_a_transaction(config, link, target)
        topics_here = source.topic_names()
        follows = following(config, source.cluster, target.cluster, topics_here)
        names = {follow.name: follow.there for follow in follows}
        topics = [
            *_topic_findings(config, where, source, target, names),
            *_letters_findings(config, where, target),
        ]
    except KafkaException as error:
        yield Finding(where, error.args[0].str(), fault=True)
        return
    yield from topics
    if not any(finding.fault for finding in topics):
        yield Finding(where, f"{len(names)} topics can be copied")


def _try_a_transaction(config: ClustersConfig, link: Link, target: KafkaSide) -> None:
    """Raises KafkaException if the target allows none, or none that long."""
    settings = {
        **target.settings,
        "transactional.id": f"{link.group}-check",
        "transaction.timeout.ms": config.messages.transaction_timeout_ms,
        "log_level": QUIET,
    }
    opened(settings, config.messages.status_topic, ANSWER_S)


def _topic_findings(
    config: ClustersConfig,
    where: str,
    source: KafkaSide,
    target: KafkaSide,
    names: dict[str, str | Unfit],
) -> Iterator[Finding]:
    policy = policy_of(config.messages)
    known = {name: there for name, there in names.items() if not isinstance(there, Unfit)}
    here, there = source.topics(list(known)), target.topics(list(known.values()))
    for name, unfit in names.items():
        if isinstance(unfit, Unfit):
            yield Finding(where, f"{name}: no name on the target: {unfit}", fault=True)
    for name, topic in here.items():
        verdict = compare(topic, there.get(known[name]), policy)
        if isinstance(verdict, Stopped):
            yield Finding(where, f"{name}: {verdict.reason}", fault=True)
        elif isinstance(verdict, Missing):
            yield Finding(where, f"{name}: will be created on the target")
    needs = ((source, list(here), AclOperation.READ), (target, list(there), AclOperation.WRITE))
    for side, topics, operation in needs:
        for name, answer in side.described(topics, operation).items():
            if isinstance(answer, KafkaError):
                text = f"{name}: {answer.str()} on {side.cluster.name}"
                yield Finding(where, text, fault=True)


def _letters_findings(config: ClustersConfig, where: str, target: KafkaSide) -> Iterator[Finding]:
    if config.messages.on_refused != "dead_letter":
        return
    name = config.messages.dead_letter_topic
    (answer,) = target.described([name], AclOperation.WRITE).values()
    if not isinstance(answer, KafkaError):
        return
    if answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        yield Finding(where, f"{name}, for dead letters, will be created on the target")
    else:
        text = f"{name}, for dead letters: {answer.str()} on {target.cluster.name}"
        yield Finding(where, text, fault=True)


def findings_text(findings: list[Finding]) -> str:
    """One line for each finding, with faults marked."""
    lines = [
        f"{'FAULT' if finding.fault else 'ok   '}  {finding.where}: {finding.text}"
        for finding in findings
    ]
    faults = sum(finding.fault for finding in findings)
    return "\n".join([*lines, f"{faults} faults" if faults else "no fault"])
