"""One seeded history of several nodes: they join, die, stand still and are cut off while consumers
work; then calm, and everything must finish.

All code of the nodes runs as it is (process.py). The same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog
from pydantic import SecretStr

from gateway.config.file import Config
from gateway.config.groups import GroupSection
from gateway.config.state import NodesSection, StateSection
from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology
from tests.rig.node_parts import TOPIC, TOPIC_ID, ScriptedCommits
from tests.sim.checkers import CheckFailure
from tests.sim.nodes.consumer import Consumer
from tests.sim.nodes.faults import Faults, Options, draw
from tests.sim.nodes.judge import Judge
from tests.sim.nodes.process import PORT, Line, Process
from tests.sim.nodes.redis import SharedRedis
from tests.sim.nodes.timeline import Loop, Timeline
from tests.sim.nodes.trouble import NAMES, Trouble

CALM_MS_MAX = 180_000
QUIET_MS = 15_000  # of calm, at least
TURNS_MAX = 2_000_000
METADATA_MS_MAX = 2_000
BUGS = ("dispatcher_bug", "command_failed", "window_not_loaded", "dead_letters_failed")


@dataclass(frozen=True, slots=True)
class View:
    """Metadata and FindCoordinator, as one node answered them."""

    addresses: dict[int, str]  # node names, by virtual broker
    leaders: dict[int, int]  # by partition
    coordinator: int

    def led_by(self, broker: int) -> list[int]:
        return [partition for partition, leader in self.leaders.items() if leader == broker]


# Long: the clock, and all that a history draws from its seed.
class World:
    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.options: Options = draw(self.rng)
        self.faults: Faults = self.options.faults
        self.verbose = verbose
        options = self.options
        self.timeline = Timeline()
        self.redis = SharedRedis(self.timeline, self.rng)
        self.redis.skew_us = self._skew_ms() * 1_000
        self.commits = ScriptedCommits()
        self.records: dict[int, list[bytes | None]] = {
            partition: [] for partition in range(options.partitions)
        }
        self.leaders = {partition: self.any_broker() for partition in self.records}
        self.epochs = {partition: [0] for partition in self.records}  # where each leader begins
        self.coordinator = self.any_broker()
        self.topology = self.topology_now()
        self.judge = Judge(
            self.timeline,
            self.records,
            grace_ms=options.grace_ms,
            slack_ms=2 * options.skew_ms_max + 10,
        )
        self.clients = Loop(self.timeline, self.failed)
        self.timeline.loops.append(self.clients)
        self.processes: list[Process] = []  # of all times, the dead ones among them
        self.wanted: list[str] = []  # nodes that are to run
        self.trouble = Trouble(self)
        self.consumers = [
            Consumer(self, f"c{at + 1}", self._globs(at)) for at in range(options.consumers)
        ]
        self.produced = 0
        self.lines = 0
        self.calm = False
        self.seen: Counter[str] = Counter()
        self._failure: BaseException | None = None

    def _globs(self, consumer: int) -> list[str]:
        """The keys that one of the consumers takes, by their last digit; empty: every key."""
        count = self.options.consumers
        return [f"key-*{at}" for at in range(consumer, 10, count) if self.options.filtered]

    @property
    def events(self) -> int:
        return self.timeline.turns

    @property
    def delivered(self) -> int:
        return self.judge.delivered_count

    def _skew_ms(self) -> int:
        return self.rng.randint(-self.options.skew_ms_max, self.options.skew_ms_max)

    def any_broker(self) -> int:
        return self.rng.randint(1, self.options.brokers)

    def topology_now(self) -> Topology:
        parts = {
            partition: PartitionInfo(leader, len(self.epochs[partition]) - 1)
            for partition, leader in self.leaders.items()
        }
        brokers = range(1, self.options.brokers + 1)
        return Topology(
            cluster_id="c",
            brokers={broker: Broker(broker, "upstream", PORT + broker) for broker in brokers},
            topics={TOPIC: Topic(TOPIC, TOPIC_ID, parts)},
            names={TOPIC_ID: TOPIC},
        )

    def config(self, node: str) -> Config:
        options = self.options
        section = GroupSection(
            auto_offset_reset="earliest",
            lock_duration_ms=options.lock_ms,
            disconnect_grace_ms=options.grace_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            session_timeout_ms=max(10_000, 4 * options.heartbeat_ms),
            deliveries_max=1_000,
            backoff_base_ms=100,
            backoff_max_ms=1_000,
            assignment_interval_ms=0,
        )
        return Config(
            groups=(section,),
            nodes=NodesSection(id=node),
            state=StateSection(
                redis_url=SecretStr("redis://shared"), commit_interval_ms=options.commit_ms
            ),
        )

    # ------------------------------------------------------------------------------- what happens

    def failed(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def note(self, what: str, detail: object = "") -> None:
        self.seen[what] += 1
        self.say(what, detail)

    def say(self, what: str, detail: object = "") -> None:
        if self.verbose:
            at = round((self.timeline.now_s - 1_000_000) * 1000)
            print(f"{at:>7} {what:14} {detail}")  # noqa: T201

    def _advance(self) -> None:
        self.timeline.step()
        if self._failure is not None:
            raise self._failure
        if self.timeline.turns > TURNS_MAX:
            raise CheckFailure("Progress", f"{TURNS_MAX} turns")

    def run(self) -> World:
        """Raises CheckFailure, or what the code of a node has raised."""
        with self._watched():
            try:
                self._run()
            finally:
                for process in self.processes:
                    process.end()
                self.clients.end()
        return self

    def _run(self) -> None:
        options = self.options
        for name in NAMES[: options.nodes]:
            self.wanted.append(name)
            self.start_later(name, self.rng.choice((0, 0, 500)))
        for consumer in self.consumers:
            self.begin_later(consumer, self.rng.randint(0, 2_000))
        self.timeline.after(0, self._produce)
        self.timeline.after(1_000, self.trouble.every_second)
        self.timeline.after(100, self._look)
        until_s = self.timeline.now_s + options.calm_after_ms / 1000
        while self.timeline.now_s < until_s:
            self._advance()
        self._calm_down()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Log lines of the nodes: part of the trace, and a bug that is only logged is a failure."""

        def heard(_: Any, method: str, line: dict[str, Any]) -> Any:
            event = str(line.get("event"))
            if event in BUGS:
                self.failed(AssertionError(f"{event}: {line}"))
            if self.verbose:
                rest = {name: value for name, value in line.items() if name != "event"}
                self.say(f"  {event}", f"{method} {rest}")
            raise structlog.DropEvent

        processors = structlog.get_config()["processors"]
        before = processors.copy()
        processors[:] = [heard]
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
            processors[:] = before

    # -------------------------------------------------------------------------------------- records

    def _produce(self) -> None:
        options, rng = self.options, self.rng
        partition = rng.randrange(options.partitions)
        for _ in range(rng.randint(1, 6)):
            if self.produced < options.records:
                key: bytes | None = b"key-%d" % rng.randrange(options.keys)
                if rng.random() < options.null_keys and not options.filtered:
                    key = None
                self.records[partition].append(key)
                self.produced += 1
        for process in self.living():
            process.call(process.log.serve)
        if self.produced < options.records:
            rest = options.records - self.produced
            pause_ms = options.calm_after_ms * 3 // rest if rest > 20 else 200
            self.timeline.after(rng.randint(1, max(2, pause_ms)), self._produce)

    # ---------------------------------------------------------------------------------------- nodes

    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]

    def may_spare(self, name: str) -> bool:
        return len(self.wanted) > 1 and name in self.wanted

    def start_later(self, name: str, delay_ms: int) -> None:
        def start() -> None:
            if name in self.wanted and all(process.name != name for process in self.living()):
                self.judge.disturbed()
                Process(self, name, self._skew_ms())
                self.note("Started", name)

        self.timeline.after(delay_ms, start)

    def process_gone(self, process: Process) -> None:
        self.judge.disturbed()
        self.note("Gone", process.name)
        if process.name in self.wanted:
            self.start_later(process.name, self.rng.randint(100, 12_000))

    def begin_later(self, consumer: Consumer, delay_ms: int) -> None:
        self.timeline.after(delay_ms, consumer.begin)

    def evicted(self, consumer: Consumer) -> None:
        """The member is told so; what it had is no more its own."""
        self.note("Evicted", consumer.member)
        self.judge.forgotten(consumer.member)

    # ------------------------------------------------------------------------------ for its clients

    async def metadata(self) -> View | None:
        """From any node of the bootstrap list. None: nobody answers."""
        nodes = [living for living in self.living() if living.server.listens and not living.cut_off]
        if not nodes:
            return None
        process = self.rng.choice(nodes)
        answer: asyncio.Future[View | None] = self.clients.create_future()

        def answered(view: View | None) -> None:
            if not answer.done():
                answer.set_result(view)

        def asked() -> None:
            names = {broker: at.host for broker, at in process.server.shown.items()}
            partitions = self.topology.topics[TOPIC].partitions
            leaders = {partition: info.leader for partition, info in partitions.items()}
            view = View(names, leaders, self.coordinator)
            self.timeline.after(1, lambda: answered(view))

        self.timeline.after(self.rng.random(), lambda: process.call(asked))
        self.timeline.after(METADATA_MS_MAX, lambda: answered(None))
        return await answer

    def connect(self, node: str | None, broker: int) -> Line | None:
        found = [process for process in self.living() if process.name == node]
        if not found or not found[0].server.listens or found[0].cut_off:
            return None
        self.lines += 1
        line = Line(found[0], self.lines, broker)
        found[0].server.lines[line.id] = line
        return line

    def sends(self, line: Line, arrives: Callable[[], None]) -> None:
        def at_the_node() -> None:
            if not line.process.cut_off:
                line.process.call(arrives)

        self.timeline.after(self.rng.random() / 2, at_the_node)

    # ------------------------------------------------------------------------------------- progress

    def _look(self) -> None:
        """Ten times a second."""
        self.timeline.after(100, self._look)
        self.judge.look_at_owners(self.processes, range(1, self.options.brokers + 1))

    def _calm_down(self) -> None:
        self.calm = True
        self.faults = Faults()
        self.note("Calm")
        self.judge.disturbed(redis=True)
        self.redis.down = False
        self.redis.thaw()
        for process in self.living():
            process.go_on()
            process.link.speak()
            process.link.late_ms = 0.0
            process.cut_off = False
        for consumer in self.consumers:
            self.begin_later(consumer, 0)
        began_ms = self.timeline.now_ms
        while not (self._finished() and self.timeline.now_ms - began_ms > QUIET_MS):
            if self.timeline.now_ms - began_ms > CALM_MS_MAX:
                raise CheckFailure("Progress", self._why_stuck())
            self._advance()
        self._check_end(began_ms)

    def _finished(self) -> bool:
        if self.produced < self.options.records:
            return False
        cursors = {key.partition: window.cursor for key, window in self.redis.store.windows.items()}
        return all(cursors.get(at, 0) == len(log) for at, log in self.records.items())

    def _check_end(self, began_ms: int) -> None:
        every = {(at, offset) for at, log in self.records.items() for offset in range(len(log))}
        if lost := every - self.judge.worked:
            raise CheckFailure("NothingLost", f"{sorted(lost)} are settled, and nobody had them")
        late_ms = began_ms + 2 * QUIET_MS
        if fenced := [at_ms for at_ms in self.judge.fenced_ms if at_ms > late_ms]:
            raise CheckFailure("TakingTurns", f"still fenced when all is calm: {fenced}")

    def _why_stuck(self) -> str:
        windows = {key.partition: window.cursor for key, window in self.redis.store.windows.items()}
        ends = {at: len(log) for at, log in self.records.items()}
        owners = {process.name: process.owners.routing for process in self.living()}
        said = [
            f"{process.name}: {window!r} {window.life!r} leader {window.leader}"
            for process in self.living()
            for window in process.table.all()
        ]
        return f"cursors {windows} of {ends}; {owners}; {said}; {self.leaders}"


def run(seed: int, *, verbose: bool = False) -> World:
    return World(seed, verbose=verbose).run()
