"""As world.py, with the nodes that run the repartition and the clients that are connected to them.

Real, besides: the choice of the next step, what a node knows of who has adopted, the record and its
phases. Modelled: Redis, which has the record; nodes that learn of it late, are killed before or
behind a step's write, and return; a node that still takes itself for the first one; producers that
ask for Metadata now and then, or only when they connect, and that stand still with batches unsent.

Judged, besides: boundaries are taken when every producer knows the new partitions or has lost its
connection (parties.py); it ends FINISHED, and then no producer writes by the old partitions.
"""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.hold import HELD_WHOLE, HoldMoved
from dispatcher.core.model import Acquire
from gateway.core.repartition.adoption import Adopting, Producing
from gateway.core.repartition.holding import LogEnds, moves, unpacked
from gateway.core.repartition.progress import Left, NodeSaid, next_step
from gateway.core.repartition.record import Move, Pace, Phase, Repartition
from tests.sim.repartition.parties import Link, Node, ProducerAt, judge_boundaries
from tests.sim.repartition.world import ME, SESSION, Producer, Window, World, sent_of

ASKS_MS_MAX = 4_000
SILENT_MS = 10_000_000
DEAD_MS = 1_000  # so long after its end the others count a node as live
CLOSE_MS = 500
FROZEN_MS_MAX = 6_000
# Of the records that are left at its beginning so many are for later phases.
LATER = {
    Phase.MARKED: 0.9,
    Phase.CREATED: 0.75,
    Phase.SHOWN: 0.4,
    Phase.OPEN: 0.15,
    Phase.DRAINING: 0.1,
}


# Long: nodes and the producers that are connected to them; neither acts without the other.
class Nodes(World):
    def __init__(self, seed: int) -> None:
        self.nodes: list[Node] = []
        self.owners: dict[int, Node] = {}  # by partition
        super().__init__(seed)
        # Of a batch: a freeze, an outage and a node that dies, and what is late behind each.
        self.delivery_ms = 2 * FROZEN_MS_MAX + 3 * self.options.late_ms
        pace = Pace(
            adoption_ms=self.rng.choice((200, 2_000, 40_000)),
            settle_ms=self.options.settle_ms,
            late_ms=ASKS_MS_MAX + self.delivery_ms,
        )
        self.marked = replace(self.record, pace=pace)
        self.record = replace(self.marked, phase=Phase.ABORTED, version=0)  # one of before
        for node in self.nodes:
            node.record = self.record
        self.busy = self.rng.choice((0.5, 0.1, 0.02))  # with few, they come in all phases
        self.said: dict[str, NodeSaid] = {}
        self.clients = [
            ProducerAt(
                producer,
                self.rng.choice((300, ASKS_MS_MAX, SILENT_MS)),
                rests=self.rng.random() < 0.2,
            )
            for producer in self.producers
        ]
        self.opened = 0  # connections
        self.left_then = 0  # records, when it began
        self.phases: list[Phase] = []
        self.created_ms: dict[tuple[bytes, int], int] = {}
        self.leaderless_ms = [0] * self.options.after  # by partition: until then
        self.unowned_ms = [0] * self.options.after
        self.slow = self.rng.choice((None, *self.nodes))  # it hears of everything late

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
        if self.rng.random() < 0.1:
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
                if others:
                    until_ms = self.now_ms + self.rng.randint(0, FROZEN_MS_MAX)
                    self.unowned_ms[window.partition] = until_ms
        for client in self.clients:
            self._disconnect(client, node)

    def _answering(self) -> list[int]:
        return [at for at, until_ms in enumerate(self.leaderless_ms) if until_ms <= self.now_ms]

    def _ways(self) -> dict[int, object]:
        return {
            at: self.owners[at].name
            for at in self._answering()
            if self.unowned_ms[at] <= self.now_ms
        }

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
        waits = self.left <= self.left_then * LATER.get(self.record.phase, 0)
        if waits and not any(sent for each in self.producers for sent in each.sent.values()):
            self.now_ms += rng.randint(0, 100)
        if self.record.version == 0 and self.left <= self.options.records * (
            1 - self.options.open_at
        ):
            self.record, self.left_then = self.marked, self.left
        for client in self.clients:
            self._client(client)
        if rng.random() < 0.002:
            away_ms = rng.randint(500, FROZEN_MS_MAX)
            self.leaderless_ms[rng.randrange(self.options.after)] = self.now_ms + away_ms
        node = rng.choice(self.nodes)
        if node is self.slow and rng.random() < 0.85:
            return
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
            links = [link for link in (each.links.get(node.name) for each in self.clients) if link]
            node.adopting = Adopting(
                record.topic,
                max((link.connection for link in links), default=0),
                self.now_ms,
                frozenset(link.connection for link in links if link.produces),
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
        if move in (Move.OPEN, Move.RAISE) and len(self._answering()) < self.options.after:
            return
        facts: dict[Move, dict[str, object]] = {
            Move.PREPARE: {"groups": ("g",), "prepared": True},
            Move.SHOW: {"shown_ms": now_ms},
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
            if move is Move.OPEN and not record.into:
                judge_boundaries(record.before, node, self.clients, self.nodes, self.owners)
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
        return node.adopting.outstanding(self._all_producing(node))

    def _all_producing(self, node: Node) -> list[Producing]:
        return [self._producing(each, node) for each in self.clients if node.name in each.links]

    def _producing(self, client: ProducerAt, node: Node) -> Producing:
        link = client.links[node.name]
        sent = [
            client.since_ms[at]
            for at, sent in sent_of(client.producer)
            if sent and at not in client.stuck and self.owners[at] is node
        ]
        oldest_ns = min(sent) * 1_000_000 if sent else None
        return Producing(
            link.connection,
            link.produces,
            oldest_ns,
            client.client,
            link.topics,
            whole_ns=oldest_ns or 0,
        )

    def _close_late_ones(self, node: Node) -> None:
        if node.adopting is None or node.record is None:
            return
        over_ms = self.now_ms - node.adopting.since_ms - node.record.pace.adoption_ms
        if over_ms < 0:
            return
        adopting, over = node.adopting, over_ms > CLOSE_MS
        chosen = adopting.outstanding if over else adopting.to_close
        to_close = chosen(self._all_producing(node))
        if to_close and node.record.boundaries:
            node.late_ms = self._latest_ms(node)
        for client in self.clients:
            link = client.links.get(node.name)
            if link is not None and link.connection in to_close and over:
                node.adopting.closed(link.connection)
                self._disconnect(client, node)

    def _client(self, client: ProducerAt) -> None:
        if client.frozen_ms > self.now_ms:
            return
        # Whoever has produced on no connection is known to nobody: metadata.max.age.ms has to do.
        known = any(link.produces for link in client.links.values())
        if self.now_ms - client.asked_ms >= (client.asks_ms if known else ASKS_MS_MAX):
            self._ask(client)
        if self.record.into and self.record.boundaries:
            late_ms = self.record.pace.late_ms
            client.moves_ms = client.moves_ms or self.now_ms + self.rng.randint(0, late_ms // 2)
            if client.moves_ms <= self.now_ms:
                client.producer.knows = self.options.after
        if self.rng.random() < 0.002 and not any(client.producer.sent.values()):
            self._freeze(client)

    def _freeze(self, client: ProducerAt) -> None:
        """With batches that it has not sent."""
        for _ in range(min(self.left, 3)):
            self._produce(client.producer)
        client.frozen_ms = self.now_ms + self.rng.randint(500, FROZEN_MS_MAX)

    def _disconnect(self, client: ProducerAt, node: Node) -> None:
        """It asks for Metadata then, whether it has anything to send or not."""
        if client.links.pop(node.name, None) is not None:
            client.asked_ms = -SILENT_MS

    def _connect(self, client: ProducerAt, node: Node) -> Link:
        self.opened += 1
        link = client.links[node.name] = Link(self.opened)
        if client.asks_ms == SILENT_MS or self.rng.random() < 0.5:
            self._ask(client)
        return link

    def _ask(self, client: ProducerAt) -> None:
        """Any node for Metadata."""
        known = [node for node in self.nodes if node.up and node.record is not None]
        if not known:
            return
        node, client.asked_ms = self.rng.choice(known), self.now_ms
        record = node.record
        if record is None or record.into:
            return
        if record.prepared and record.phase is Phase.CREATED and len(self.nodes) > 1:
            self._disconnect(client, node)
            return
        knew = client.producer.knows
        client.producer.knows = self.options.after if record.shows_new else self.options.before
        if record.shows_new and client.learned_ms < 0:
            client.learned_ms = self.now_ms
        if record.shows_new and node.adopting is not None:
            link = client.links.get(node.name) or self._connect(client, node)
            node.adopting.served(link.connection, client.client, self.now_ms * 1_000_000)
            if knew == self.options.before and self.rng.random() < 0.05:
                self._freeze(client)

    # -------------------------------------------------------------------------------- what is sent

    def _produce(self, producer: Producer) -> None:
        client = next(each for each in self.clients if each.producer is producer)
        later = self.left_then * LATER.get(self.record.phase, 0)
        if client.frozen_ms > self.now_ms or self.left <= later:
            return
        if client.rests and self.record.holds:
            return
        over = self.record.phase is Phase.FINISHED
        assert not over or producer.knows == self.options.after, "by the old partitions"
        at = self._send(producer)
        _, key, number = producer.sent[at][-1]
        self.created_ms[key, number] = self.now_ms
        if len(producer.sent[at]) == 1:
            client.since_ms[at] = self.now_ms
        self._reaches(client, at)

    def _arrive(self) -> None:
        for client in self.clients:
            for at, sent in sent_of(client.producer):
                while sent and self._is_given_up(*sent[0][1:]):
                    sent.popleft()
                if not sent:
                    continue
                if not self._reaches(client, at):
                    client.stuck.add(at)
                elif at in client.stuck:
                    client.stuck.discard(at)
                    client.since_ms[at] = self.now_ms
                    due_ms, key, number = sent[0]
                    sent[0] = max(due_ms, self._due_ms(at)), key, number
        super()._arrive()

    def _is_given_up(self, key: bytes, number: int) -> bool:
        """Its delivery.timeout.ms is over: it counts as settled."""
        over = self.now_ms - self.created_ms[key, number] > self.delivery_ms
        if over:
            self.settled.setdefault(key, set()).add(number)
        return over

    def _arrives(self, producer: Producer, partition: int) -> bool:
        client = next(each for each in self.clients if each.producer is producer)
        return partition not in client.stuck

    def _reaches(self, client: ProducerAt, partition: int) -> bool:
        """As a Produce to it does, which the node notes."""
        node = self.owners[partition]
        if client.frozen_ms > self.now_ms or partition not in self._ways() or not node.up:
            return False
        if node.record is None:
            return False
        link = client.links.get(node.name) or self._connect(client, node)
        if not link.produces:
            link.produces, link.produced_ms = True, self.now_ms
        if node.record.runs:
            link.topics = ("t",)
        if partition >= self.options.before and not node.record.shows_new:
            client.asked_ms = -SILENT_MS  # UNKNOWN_TOPIC_OR_PARTITION
            return False
        return client.links.get(node.name) is link

    def _finished(self) -> bool:
        return super()._finished() and self.record.phase is Phase.FINISHED
