"""As world.py, with the nodes that run the repartition and the clients that are connected to them.

Real, besides: the choice of the next step, what a node knows of who has adopted, the record and its
phases. Modelled: Redis, which has the record; nodes that learn of it late, are killed before or
behind a step's write, and return; a node that still takes itself for the first one; producers that
ask for Metadata now and then, or only when they connect, and that stand still with batches unsent.

Judged, besides: it ends FINISHED, and then no producer writes by the old partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dispatcher.core.hold import HELD_WHOLE, HoldMoved
from dispatcher.core.model import Acquire
from gateway.core.repartition.adoption import Adopting, Producing
from gateway.core.repartition.consumers import Client
from gateway.core.repartition.holding import LogEnds, moves, unpacked
from gateway.core.repartition.progress import Left, NodeSaid, next_step
from gateway.core.repartition.record import Move, Pace, Phase, Repartition
from tests.sim.repartition.world import ME, SESSION, Producer, Window, World

ASKS_MS_MAX = 4_000
SILENT_MS = 10_000_000
DEAD_MS = 1_000  # so long after its end the others count a node as live
CLOSE_MS = 500
FROZEN_MS_MAX = 6_000


@dataclass(slots=True)
class Node:
    name: str
    ends: LogEnds
    skew_ms: int
    record: Repartition | None = None  # as it knows it; None: it has just started
    up: bool = True
    heard_ms: int = 0  # by the others
    adopting: Adopting | None = None
    late_ms: int = 0
    counted: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class ProducerAt:
    """A producer with its connection. Times are `now_ms`."""

    producer: Producer
    asks_ms: int  # for Metadata, after so long
    node: Node | None = None  # None: it is not connected
    connection: int = 0
    asked_ms: int = 0
    frozen_ms: int = 0  # until then
    sent_ms: int = 0  # its oldest request that is not answered
    produces: bool = False  # on this connection
    topics: tuple[str, ...] = ()
    moves_ms: int = 0  # its operator moves it then

    @property
    def client(self) -> Client:
        return f"10.0.0.{id(self)}", "app"

    @property
    def producing(self) -> Producing:
        unanswered = any(self.producer.sent.values())
        oldest_ns = self.sent_ms * 1_000_000 if unanswered else None
        return Producing(self.connection, self.produces, oldest_ns, self.client, self.topics)

    def writes(self, now_ms: int) -> None:
        if not any(self.producer.sent.values()):
            self.sent_ms = now_ms
        if self.node is not None and self.node.record is not None:
            self.produces = True
            if self.node.record.runs:
                self.topics = ("t",)


class Nodes(World):
    def __init__(self, seed: int) -> None:
        self.nodes: list[Node] = []
        self.owners: dict[int, Node] = {}  # by partition
        super().__init__(seed)
        pace = Pace(
            adoption_ms=self.rng.choice((200, 2_000)),
            settle_ms=self.options.settle_ms,
            late_ms=ASKS_MS_MAX + FROZEN_MS_MAX + 2 * self.options.late_ms,
        )
        self.marked = replace(self.record, pace=pace)
        self.record = replace(self.marked, phase=Phase.ABORTED, version=0)  # one of before
        for node in self.nodes:
            node.record = self.record
        self.busy = self.rng.choice((0.5, 0.1, 0.02))  # with few, they come in all phases
        self.said: dict[str, NodeSaid] = {}
        self.clients = [
            ProducerAt(producer, self.rng.choice((300, ASKS_MS_MAX, SILENT_MS)))
            for producer in self.producers
        ]
        self.opened = 0  # connections
        self.phases: list[Phase] = []

    # -------------------------------------------------------------------------- nodes and windows

    def _window(self, partition: int) -> Window:
        if not self.nodes:
            for name in "abc"[: self.rng.randint(1, 3)]:
                skew = self.rng.randint(-self.options.clock_ms, self.options.clock_ms)
                self.nodes.append(Node(name, LogEnds(), skew))
        self.owners[partition] = node = self.rng.choice(self.nodes)
        window = super()._window(partition)
        window.ends, window.skew_ms = node.ends, node.skew_ms
        return window

    def _known(self, window: Window) -> Repartition:
        node = self.owners[window.partition]
        return self.record if node.record is None else node.record

    def _crash(self, window: Window) -> None:
        """The window alone; or it is handed over."""
        super()._crash(window)
        if self.rng.random() < 0.5:
            self._own(window, self.rng.choice([node for node in self.nodes if node.up]))
        else:
            self._own(window, self.owners[window.partition])

    def _own(self, window: Window, node: Node) -> None:
        self.owners[window.partition] = node
        window.ends, window.skew_ms = node.ends, node.skew_ms

    def _kill(self, node: Node) -> None:
        """If it is the only one it starts again at once."""
        others = [other for other in self.nodes if other.up and other is not node]
        node.up, node.record, node.adopting = not others, None, None
        node.ends, node.late_ms, node.counted = LogEnds(), 0, {}
        for window in self.windows:
            if self.owners[window.partition] is node:
                super()._crash(window)
                self._own(window, self.rng.choice(others or [node]))
        for client in self._clients_of(node):
            client.node = None

    def _clients_of(self, node: Node) -> list[ProducerAt]:
        return [client for client in self.clients if client.node is node]

    def _act(self, window: Window) -> None:
        if self._sees(window):
            super()._act(window)

    def _sees(self, window: Window) -> bool:
        node = self.owners[window.partition]
        old = window.partition < self.options.before
        return node.up and node.record is not None and (old or node.record.shows_new)

    def _beat(self) -> None:
        for window in self.windows:
            if not self._sees(window):
                continue
            self._look(window)
            self._read(window)
            if window.partition < self.options.before:
                self._report(window)
            elif self._known(window).holds:
                self._hold(window)
            self._handle(window, Acquire(ME, SESSION, 20, self.now_ms))
            self._store(window)

    def _read(self, window: Window) -> None:
        start = window.core.read_position
        super()._read(window)
        node, known = self.owners[window.partition], self._known(window)
        if window.partition >= self.options.before or not known.boundaries or known.into:
            return
        first = max(node.counted.get(window.partition, 0), known.boundaries[window.partition])
        read = range(max(start, first), window.core.read_position)
        log = self.logs[window.partition]
        node.counted[window.partition] = max(first, window.core.read_position)
        if any(moves(known, window.partition, log[offset][0]) for offset in read):
            node.late_ms = self._latest_ms(node)

    def _latest_ms(self, node: Node) -> int:
        return self.now_ms + node.skew_ms + self.options.clock_ms

    # ------------------------------------------------------------------------------------ the steps

    def _go_on(self) -> None:
        rng = self.rng
        if self.record.version == 0 and self.left <= self.options.records * (
            1 - self.options.open_at
        ):
            self.record = self.marked
        for client in self.clients:
            self._client(client)
        node = rng.choice(self.nodes)
        if rng.random() < 0.004:
            if node.up:
                self._kill(node)
            else:
                node.up = True
        if node.up and rng.random() < 0.2:
            node.heard_ms = self.now_ms
            self.said[node.name] = self._said_by(node)
        if node.up and rng.random() < 0.2:
            self._turn(node)

    def _live(self) -> list[str]:
        return [
            node.name for node in self.nodes if node.up or self.now_ms - node.heard_ms < DEAD_MS
        ]

    def _said_by(self, node: Node) -> NodeSaid:
        version = 0 if node.record is None else node.record.version
        return NodeSaid(version, len(self._outstanding(node)), node.late_ms)

    def _follow(self, node: Node) -> None:
        before, record = node.record, self.record
        if before == record:
            return
        node.record = record
        if record.holds and node.adopting is None and not record.into:
            mine = self._clients_of(node)
            node.adopting = Adopting(
                record.topic,
                max((each.connection for each in mine), default=0),
                self.now_ms,
                frozenset(each.connection for each in mine if each.produces),
            )
        ends = record.phase is Phase.FINISHED
        begins = before is None or (record.holds and not before.shows_new)
        for window in self.windows[self.options.before :]:
            if self.owners[window.partition] is node and (ends or begins):
                self._handle(window, HoldMoved(None if ends else HELD_WHOLE, self.now_ms))

    def _turn(self, node: Node) -> None:
        """One turn of its clock."""
        self._follow(node)
        record = node.record
        if record is None or not record.runs:
            return
        if record.holds:
            self._close_late_ones(node)
            self._note_ends(node, record)
        live = self._live()
        if node.name != min(live) and self.rng.random() > 0.02:  # it may take itself for the first
            return
        said = self.said | {node.name: self._said_by(node)}
        now_ms = self.now_ms + node.skew_ms - self.options.clock_ms
        following = next_step(record, live, said, self._left(record), now_ms)
        if following.move is not None:
            self._make(node, record, following.move, now_ms)

    def _make(self, node: Node, record: Repartition, move: Move, now_ms: int) -> None:
        ends = tuple(len(log) for log in self.logs[: record.before])
        facts: dict[Move, dict[str, object]] = {
            Move.SHOW: {"groups": ("g",), "shown_ms": now_ms},
            Move.OPEN: {"boundaries": ends, "opened_ms": now_ms},
            Move.RAISE: {"boundaries": ends, "raised_ms": now_ms},
        }
        made = record.moved(move, **facts.get(move, {}))
        fate = self.rng.random()
        if fate < 0.15:
            self._kill(node)
            return
        if self.record.version == record.version:
            self.record = made
            self.phases.append(made.phase)
        if fate > 0.85:
            self._kill(node)
        else:
            self._follow(node)

    def _left(self, record: Repartition) -> list[Left]:
        found = []
        for partition, boundary in enumerate(record.boundaries):
            offsets = max(0, boundary - self.windows[partition].stored.cursor)
            told = self.told.get(partition)
            keys = None if told is None else unpacked(told).keys
            found.append(Left("g", partition, offsets, None if keys is None else len(keys)))
        return found

    def _note_ends(self, node: Node, record: Repartition) -> None:
        if not record.into:
            return
        for partition, boundary in enumerate(record.boundaries):
            end, seen = len(self.logs[partition]), node.counted.get(partition, 0)
            if end > max(boundary, seen):
                node.late_ms = self._latest_ms(node)
            node.counted[partition] = max(end, seen)

    # ------------------------------------------------------------------------------------- clients

    def _outstanding(self, node: Node) -> list[int]:
        if node.adopting is None:
            return []
        return node.adopting.outstanding(each.producing for each in self._clients_of(node))

    def _close_late_ones(self, node: Node) -> None:
        if node.adopting is None or node.record is None:
            return
        over_ms = self.now_ms - node.adopting.since_ms - node.record.pace.adoption_ms
        if over_ms < 0:
            return
        outstanding = self._outstanding(node)
        if outstanding and node.record.boundaries:
            node.late_ms = self._latest_ms(node)
        for client in self._clients_of(node):
            if client.connection in outstanding and over_ms > CLOSE_MS:
                node.adopting.closed(client.connection)
                client.node = None

    def _client(self, client: ProducerAt) -> None:
        if client.frozen_ms > self.now_ms:
            return
        if client.node is None:
            self._connect(client)
        elif self.now_ms - client.asked_ms >= client.asks_ms:
            self._ask(client)
        if self.record.into and self.record.boundaries:
            late_ms = self.record.pace.late_ms
            client.moves_ms = client.moves_ms or self.now_ms + self.rng.randint(0, late_ms // 2)
            if client.moves_ms <= self.now_ms:
                client.producer.knows = self.options.after
        if self.rng.random() < 0.002 and client.node and not any(client.producer.sent.values()):
            self._freeze(client)

    def _freeze(self, client: ProducerAt) -> None:
        """With batches that it has not sent."""
        client.frozen_ms = self.now_ms + self.rng.randint(500, FROZEN_MS_MAX)
        client.writes(self.now_ms)
        for _ in range(min(self.left, 3)):
            super()._produce(client.producer)
        for sent in client.producer.sent.values():
            later = [(due_ms + client.frozen_ms - self.now_ms, *rest) for due_ms, *rest in sent]
            sent.clear()
            sent.extend(later)  # type: ignore[arg-type]

    def _connect(self, client: ProducerAt) -> None:
        up = [node for node in self.nodes if node.up and node.record is not None]
        if not up:
            return
        self.opened += 1
        client.node, client.connection = self.rng.choice(up), self.opened
        client.produces, client.topics = False, ()
        if any(client.producer.sent.values()):  # these it sends again
            client.writes(self.now_ms)
            client.sent_ms = self.now_ms
        if client.asks_ms == SILENT_MS or self.rng.random() < 0.5:
            self._ask(client)

    def _ask(self, client: ProducerAt) -> None:
        """For Metadata."""
        node, client.asked_ms = client.node, self.now_ms
        if node is None or node.record is None or self.record.into or not node.record.shows_new:
            return
        client.producer.knows = self.options.after
        if node.adopting is not None:
            node.adopting.served(client.connection, client.client, self.now_ms * 1_000_000)

    def _produce(self, producer: Producer) -> None:
        client = next(each for each in self.clients if each.producer is producer)
        if client.node is not None and client.frozen_ms <= self.now_ms:
            over = self.record.phase is Phase.FINISHED
            assert not over or producer.knows == self.options.after, "by the old partitions"
            client.writes(self.now_ms)
            super()._produce(producer)

    def _finished(self) -> bool:
        return super()._finished() and self.record.phase is Phase.FINISHED
