"""A topic grows while its gateway is killed: `make campaign NAME=repartition ARGS="--rounds n"`.

Each round has a topic, a slow Key-Shared group and a slow plain one (librdkafka, classic or
KIP-848), and idempotent producers, of which one may stand still for a while. The gateway is killed
with kill -9 and started again at moments drawn from a seed: a while after a phase has begun.

Judged: of each key every record arrived in both groups, and each one only when the one before was
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.embedded.jars import build_dir
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.seeds import asked_seeds, played
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    Consumed,
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.operating import rest
from tests.rig.patience import wait_until

PHASES = ("marked", "created", "shown", "open", "draining")
# A killed gateway takes seconds to come back on a busy machine, and then producers send again.
PACE = {"adoption_timeout_ms": 1_000, "settle_ms": 1_000, "delivery_timeout_ms": 15_000}
IDEMPOTENT = ("partitioner=murmur2_random", "enable.idempotence=true")
KEYS = 40  # of each of two producers
RATE = 60  # records/s of each
NEXT_TOPIC = 1_000  # the partitions of a second topic are numbered from here on (plain_consumer.py)
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
            _wait_for(node, topic, ("draining", "finished"))
            sent = {key: count for each in producers for key, count in each.end().items()}
            told.records = sum(sent.values())
            wait_until(
                lambda: _distinct(worked) == _distinct(consumed_by(consumers)) == told.records,
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


def _wait_for(node: GatewayProcess, topic: str, phases: tuple[str, ...]) -> None:
    wait_until(
        lambda: _phase(node, topic) in phases,
        what=f"one of {phases}",
        deadline_s=ARRIVED_S_MAX,
        every_s=0.02,
    )


def _distinct(consumed: Sequence[Consumed]) -> int:
    return len({(each.key, each.number) for each in list(consumed)})


@contextmanager
def working(members: Sequence[ShareMember], topics: Sequence[str] = ()) -> Iterator[list[Consumed]]:
    """They work for a while on what a poll brought, and accept it with the next poll. What they had
    is in the list once a poll has come back. `topics`: which they read, if there are several.
    """
    ended = threading.Event()
    worked: list[Consumed] = []

    def work(member: ShareMember) -> None:
        while not ended.is_set():
            came = member.poll(0.5)
            if came:
                time.sleep(0.03)
            done_ns = time.monotonic_ns()
            for each in came:
                key, value = (each.key or b"").decode(), int(each.value or b"0")
                number = NEXT_TOPIC * topics.index(each.topic) if topics else 0
                number += each.partition
                worked.append(Consumed(each.at_ns, done_ns, number, key, value))

    threads = [threading.Thread(target=work, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    try:
        yield worked
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def main() -> int:
    seeds = asked_seeds("python -m tests.chaos.repartition", __doc__, 20)
    folder = build_dir() / "chaos"
    folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=folder, prefix="repartition-"))
    with KafkaCluster(1) as kafka, gateway_for(kafka, directory) as node:

        def one(seed: int) -> str:
            plan = Round.of(seed)
            try:
                with ShareHost.librdkafka() as host:
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
