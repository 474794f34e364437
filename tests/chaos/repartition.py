"""A topic grows, or moves into a new one, while its gateway is killed:
`make campaign NAME=repartition ARGS="--rounds n"`. Even seeds grow, odd ones move.

Each round has a topic, slow Key-Shared and plain groups (librdkafka, classic or KIP-848), and
idempotent producers. Where the topic grows one of them may stand still for a while; where it moves
they may write transactions. The gateway is killed with kill -9 and started again at moments drawn
from a seed: a while after a phase has begun.

Judged: of each key every record arrived in all groups, and each one only when the one before was
done. So a new partition delivered nothing before its time.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.embedded.jars import build_dir
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.crowd import (
    IDEMPOTENT,
    MOMENTS,
    NEXT_TOPIC,
    crowd_of,
    have_all,
    move,
    working,
)
from tests.chaos.seeds import asked_seeds, played
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.operating import rest
from tests.rig.patience import wait_until

PHASES = ("marked", "created", "shown", "open", "draining")
# A killed gateway takes seconds to come back on a busy machine, and then producers send again.
PACE = {"adoption_timeout_ms": 1_000, "settle_ms": 1_000, "delivery_timeout_ms": 15_000}
KEYS = 40  # of each of two producers
RATE = 60  # records/s of each
ARRIVED_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Kill:
    """So long after the phase was seen to have begun."""

    phase: str
    after_s: float


@dataclass(frozen=True, slots=True)
class Round:
    seed: int
    before: int
    after: int
    protocol: str
    frozen_s: float  # one producer stands still so long from the start on; 0: it does not
    kills: tuple[Kill, ...]

    @classmethod
    def of(cls, seed: int) -> Round:
        dice = random.Random(seed)
        before = dice.choice((1, 2, 4))
        phases = sorted(dice.sample(PHASES, dice.choice((1, 2, 3))), key=PHASES.index)
        return cls(
            seed,
            before,
            before * dice.choice((2, 3)),
            dice.choice(("classic", "consumer")),
            dice.choice((0.0, 2.0, 4.0)),
            tuple(Kill(phase, dice.choice((0.0, 0.1, 0.5, 2.0))) for phase in phases),
        )


@dataclass(frozen=True, slots=True)
class Moving:
    """`kills`: at some of MOMENTS (crowd.py)."""

    seed: int
    before: int
    after: int
    transactions: bool
    kills: tuple[Kill, ...]

    @classmethod
    def of(cls, seed: int) -> Moving:
        dice = random.Random(seed)
        before = dice.choice((2, 3, 8))
        moments = sorted(dice.sample(MOMENTS[:-1], dice.choice((1, 2, 3))), key=MOMENTS.index)
        return cls(
            seed,
            before,
            dice.choice([count for count in (1, 3, 5) if count != before]),
            dice.random() < 0.5,
            tuple(Kill(moment, dice.choice((0.0, 0.1, 0.5, 2.0))) for moment in moments),
        )


@dataclass(slots=True)
class Told:
    records: int = 0
    again: int = 0
    moved: int = 0  # came from new partitions
    killed: list[str] = field(default_factory=list)


def gateway_for(
    kafka: KafkaCluster, directory: Path, pace: Mapping[str, int] = PACE
) -> GatewayProcess:
    return GatewayProcess(
        directory,
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        state={"commit_interval_ms": 500},
        repartition=pace,
    )


def play(plan: Round, node: GatewayProcess, kafka: KafkaCluster, host: ShareHost) -> Told:
    """Raises AssertionError, TimeoutError."""
    topic = f"grow-{plan.seed}-{uuid.uuid4().hex[:6]}"
    shared, plain, front = f"shared-{topic}", f"plain-{topic}", node.bootstrap
    create_topic(kafka.bootstrap_servers, topic, partitions=plan.before)
    producers = [
        KeyedProducer.librdkafka(front, topic, first, KEYS, RATE, *IDEMPOTENT)
        for first in (0, KEYS)
    ]
    consumers = [
        PlainConsumer.librdkafka(front, topic, plain, 50, f"group.protocol={plan.protocol}")
        for _ in range(2)
    ]
    members = [host.member(front, shared, [topic]) for _ in range(2)]
    told = Told()
    try:
        with working(members) as worked:
            wait_until(
                lambda: len(worked) > KEYS and len(consumed_by(consumers)) > KEYS,
                what="traffic",
                deadline_s=ARRIVED_S_MAX,
            )
            body = {"topic": topic, "partitions": plan.after, "execute": True}
            if plan.frozen_s:
                producers[1].freeze()
                threading.Timer(plan.frozen_s, producers[1].thaw).start()
            status, answer = rest(node, "/v1/repartitions", body)
            assert status == 200, answer
            _strike(plan, node, topic, told)
            _wait_for(node, topic, ("draining", "finished"), 2 * plan.frozen_s)
            sent = {key: count for each in producers for key, count in each.end().items()}
            told.records = sum(sent.values())
            wait_until(
                lambda: have_all(sent, worked, consumed_by(consumers)),
                what="all records",
                deadline_s=ARRIVED_S_MAX,
            )
            _wait_for(node, topic, ("finished",))
    finally:
        for producer in producers:
            producer.thaw()
            producer.kill()
        for consumer in consumers:
            consumer.kill()
        for member in members:
            member.close()
    for group in (worked, consumed_by(consumers)):
        assert_each_after_the_one_before(group, sent)
        told.again += len(group) - told.records
        told.moved += sum(each.partition >= plan.before for each in group)
    return told


def play_move(plan: Moving, node: GatewayProcess, kafka: KafkaCluster, host: ShareHost) -> Told:
    """Raises AssertionError, TimeoutError."""
    topic = f"move-{plan.seed}-{uuid.uuid4().hex[:6]}"
    create_topic(kafka.bootstrap_servers, topic, partitions=plan.before)
    crowd = crowd_of(
        host,
        node.bootstrap,
        topic,
        lambda prefix: f"{prefix}-{topic}",
        None,
        transactions=plan.transactions,
    )
    crowd.before, crowd.after = plan.before, plan.after
    kills = {kill.phase: kill.after_s for kill in plan.kills}
    told = Told()

    def strike(moment: str) -> None:
        if moment in kills:
            time.sleep(kills[moment])
            told.killed.append(f"{moment}: {_phase(node, topic)}")
            node.kill()
            node.start()

    sent = move(crowd, node, strike)
    told.records = sum(sent.values())
    for group in crowd.groups():
        told.again += len(group) - told.records
        told.moved += sum(each.partition >= NEXT_TOPIC for each in group)
    return told


def _strike(plan: Round, node: GatewayProcess, topic: str, told: Told) -> None:
    for kill in plan.kills:
        at = PHASES.index(kill.phase)
        later = (*PHASES[at:], "finished")
        _wait_for(node, topic, later)
        time.sleep(kill.after_s)  # the moment is the point
        told.killed.append(_phase(node, topic))
        node.kill()
        node.start()


def _phase(node: GatewayProcess, topic: str) -> str:
    _, answer = rest(node, f"/v1/repartitions?topic={topic}")
    return str(answer["repartitions"][0]["phase"]) if answer["repartitions"] else "marked"


def _wait_for(
    node: GatewayProcess, topic: str, phases: tuple[str, ...], longer_s: float = 0.0
) -> None:
    wait_until(
        lambda: _phase(node, topic) in phases,
        what=f"one of {phases}",
        deadline_s=ARRIVED_S_MAX + longer_s,
        every_s=0.02,
    )


def main() -> int:
    seeds = asked_seeds("python -m tests.chaos.repartition", __doc__, 20)
    folder = build_dir() / "chaos"
    folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=folder, prefix="repartition-"))
    with KafkaCluster(1) as kafka, gateway_for(kafka, directory) as node:

        def one(seed: int) -> str:
            plan = Moving.of(seed) if seed % 2 else Round.of(seed)
            try:
                with ShareHost.librdkafka() as host:
                    if isinstance(plan, Moving):
                        return f"ok {play_move(plan, node, kafka, host)}"
                    return f"ok {play(plan, node, kafka, host)}"
            except (AssertionError, TimeoutError) as failure:
                raise AssertionError(f"{plan}: {failure}") from failure

        def keep(seed: int) -> None:
            shutil.copy(node.log, folder / f"repartition-seed-{seed}.log")

        status = played(seeds, one, keep)
    shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
