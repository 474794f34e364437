"""A simulated share consumer, as stock clients behave: heartbeats to the coordinator, a session and
a fetch per virtual broker, new Metadata after each error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dispatcher.core.model import AckType
from gateway.core.share.declared_filters import MARK
from gateway.core.share.sessions import OPEN_EPOCH
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from tests.rig.node_parts import GROUP, TOPIC, TOPIC_ID
from tests.rig.share_client import SIZE_PREFIX, rows, topics
from tests.sim.nodes.judge import Place
from tests.sim.nodes.process import Line

if TYPE_CHECKING:
    from tests.sim.nodes.world import View, World

REQUEST_S_MAX = 5.0
WAIT_MS = 500  # of a fetch without records
JOIN_ERRORS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
VERSION = 1


class LineLost(Exception):
    """Broken, or no answer in time."""


class Consumer:
    def __init__(self, world: World, name: str, globs: list[str]) -> None:
        self.world = world
        self.name = name
        self.client_id = f"{name}{MARK}{'|'.join(globs)}" if globs else name
        self.lives = 0
        self.member = ""
        self.epoch = 0
        self.joined = False
        self.alive = False
        self.lines: set[Line] = set()
        self.view: View | None = None
        self._life: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------------- comes and goes

    def begin(self) -> None:
        """A new instance: another member id."""
        if self.alive:
            return
        self.lives += 1
        self.member = f"{self.name}-{self.lives}"
        self.epoch, self.joined, self.alive = 0, False, True
        self._life = self.world.clients.create_task(self._live())

    def die(self) -> None:
        """kill -9: its connections break, and it does not come back under this id."""
        self._gone()
        for line in list(self.lines):
            line.hang_up()
        self.lines.clear()

    def leave(self) -> None:
        self._gone()
        self.world.clients.create_task(self._goodbye(list(self.lines)))
        self.lines.clear()

    def _gone(self) -> None:
        self.alive = False
        if self._life is not None:
            self._life.cancel()
        self.world.judge.forgotten(self.member)

    async def _goodbye(self, lines: list[Line]) -> None:
        try:
            for line in lines:
                await self._beat(line, -1)
        except LineLost:
            pass
        for line in lines:
            line.hang_up()

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeats())
                for broker in range(1, self.world.options.brokers + 1):
                    tasks.create_task(self._fetches(broker))
        except BaseExceptionGroup as group:
            self.world.failed(group.exceptions[0])

    # --------------------------------------------------------------------------------- connections

    async def _connect(self, broker: int) -> Line:
        """Raises LineLost; the next attempt asks for Metadata."""
        if self.view is None:
            self.view = await self.world.metadata()
        view = self.view
        line = None if view is None else self.world.connect(view.addresses.get(broker), broker)
        if line is None:
            self.view = None
            await asyncio.sleep(self.world.rng.uniform(0.05, 0.3))
            raise LineLost
        line.when_broken = self._broken
        self.lines.add(line)
        return line

    def _broken(self) -> None:
        if self.alive:
            self.world.judge.line_lost(self.member)

    def _lost(self, line: Line) -> None:
        self.view = None
        if line in self.lines:
            self.lines.discard(line)
            line.hang_up()

    async def _ask(self, line: Line, key: ApiKey, body: Message) -> Message:
        """Raises LineLost."""
        if line.broken:
            raise LineLost
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes | None] = loop.create_future()
        frame = request_frame(key, VERSION, 1, self.client_id, encode_request(key, VERSION, body))
        payload = frame[SIZE_PREFIX:]
        header = parse_request_header(payload)
        line.answers.add(answer)
        self.world.sends(line, lambda: line.arrives(key, header, payload, answer))
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                said = await answer
        except TimeoutError:
            raise LineLost from None
        finally:
            line.answers.discard(answer)
        if said is None:
            raise LineLost
        return decode_response(key, VERSION, said)

    # ----------------------------------------------------------------------------------- membership

    async def _heartbeats(self) -> None:
        line: Line | None = None
        while True:
            try:
                if line is None or line.broken:
                    if line is not None:
                        self._lost(line)
                    line = await self._to_coordinator()
                pause_ms = await self._heartbeat(line)
            except LineLost:
                if line is not None:
                    self._lost(line)
                line = None
                pause_ms = self.world.rng.uniform(50, 200)
            await asyncio.sleep(pause_ms / 1000)

    async def _to_coordinator(self) -> Line:
        if self.view is None:
            self.view = await self.world.metadata()
        return await self._connect(1 if self.view is None else self.view.coordinator)

    async def _heartbeat(self, line: Line) -> float:
        """Returns the pause before the next one, in ms. Raises LineLost."""
        answer = await self._beat(line, self.epoch)
        code = ErrorCode(answer["ErrorCode"])
        self.world.seen[f"Heartbeat {code.name}"] += 1
        if code == ErrorCode.NONE:
            self.epoch = answer["MemberEpoch"]
            self.joined = True
            return self.world.options.heartbeat_ms
        if code in JOIN_ERRORS:
            if self.joined:
                self.world.evicted(self)
            self.epoch, self.joined = 0, False
            return 10
        if code == ErrorCode.NOT_COORDINATOR:
            raise LineLost
        if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return 100
        raise AssertionError(f"{self.member}: {code.name} {answer['ErrorMessage']}")

    async def _beat(self, line: Line, epoch: int) -> Message:
        body = {
            "GroupId": GROUP,
            "MemberId": self.member,
            "MemberEpoch": epoch,
            "RackId": None,
            "SubscribedTopicNames": [TOPIC] if epoch == 0 else None,
        }
        return await self._ask(line, ApiKey.SHARE_GROUP_HEARTBEAT, body)

    # -------------------------------------------------------------------------------------- records

    async def _fetches(self, broker: int) -> None:
        line: Line | None = None
        while True:
            if not self.joined:
                await asyncio.sleep(0.05)
                continue
            try:
                line = await self._connect(broker)
                await Session(self, line, broker).run()
            except LineLost:
                pass
            if line is not None:
                self._lost(line)
                line = None
            await asyncio.sleep(self.world.rng.uniform(0.005, 0.1))


class Session:
    """A share session with one virtual broker, until something goes wrong with it."""

    def __init__(self, consumer: Consumer, line: Line, broker: int) -> None:
        self.consumer = consumer
        self.world = consumer.world
        self.judge = consumer.world.judge
        self.line = line
        self.broker = broker
        self.epoch = OPEN_EPOCH
        self.named: set[int] = set()  # partitions of the session
        self.acks: dict[Place, AckType] = {}  # to be sent with the next fetch

    async def run(self) -> None:
        """Raises LineLost."""
        while self.consumer.joined and not self.line.broken:
            if not await self._fetch():
                return

    async def _fetch(self) -> bool:
        """False: open another session."""
        world, rng = self.world, self.world.rng
        view = self.consumer.view
        led = [] if view is None else view.led_by(self.broker)
        named = (
            [] if view is None else [partition for partition in led if partition not in self.named]
        )
        self.named.update(named)
        acks = {} if self.epoch == OPEN_EPOCH else self._taken()
        sent_ms = world.timeline.now_ms
        answer = await self.consumer._ask(
            self.line,
            ApiKey.SHARE_FETCH,
            {
                **self._head(),
                "MaxWaitMs": WAIT_MS,
                "MinBytes": 1,
                "MaxBytes": 1_000_000,
                "MaxRecords": rng.choice((1, 2, 5, 50)),
                "BatchSize": 50,
                "Topics": topics(named, _batches(acks), TOPIC_ID),
            },
        )
        self.epoch += 1
        code = ErrorCode(answer["ErrorCode"])
        world.seen[f"Fetch {code.name}"] += 1
        if code != ErrorCode.NONE:
            await asyncio.sleep(0.02)
            return False
        self._acknowledged(acks, answer)
        got, moved = self._got(answer, sent_ms)
        await self._work(got)
        if moved:
            self.consumer.view = None
            await asyncio.sleep(rng.uniform(0.02, 0.1))  # retry.backoff.ms, and Metadata
        elif not led:
            await asyncio.sleep(0.2)
            self.consumer.view = await world.metadata()
            return False
        return not moved

    def _head(self) -> Message:
        return {
            "GroupId": GROUP,
            "MemberId": self.consumer.member,
            "ShareSessionEpoch": self.epoch,
        }

    def _got(self, answer: Message, sent_ms: int) -> tuple[list[Place], bool]:
        """The records, and whether a partition is led elsewhere."""
        until_ms = sent_ms + self.world.options.lock_ms - self.judge.slack_ms
        places: list[Place] = []
        moved = False
        for partition, row in rows(answer).items():
            code = ErrorCode(row["ErrorCode"])
            if code != ErrorCode.NONE:
                self.world.seen[f"Partition {code.name}"] += 1
                moved = True
            for first, last, _ in row["AcquiredRecords"]:
                places += [(partition, offset) for offset in range(first, last + 1)]
        for place in places:
            self.judge.delivered(self.consumer.member, place, until_ms)
        if self.line.broken:
            self.judge.line_lost(self.consumer.member)  # before the records were seen
        return places, moved

    async def _work(self, places: list[Place]) -> None:
        world, rng = self.world, self.world.rng
        if not places:
            return
        faults = world.faults
        stalls = rng.random() < faults.stall
        await asyncio.sleep(rng.uniform(0.5, 12) if stalls else rng.uniform(0.001, 0.03))
        for place in places:
            if rng.random() < faults.release:
                self.acks[place] = AckType.RELEASE
                self.judge.let_go(self.consumer.member, place)
            else:
                self.acks[place] = AckType.ACCEPT
                self.judge.working_done(self.consumer.member, place)
        if rng.random() < 0.5:
            await self._acknowledge()

    async def _acknowledge(self) -> None:
        acks = self._taken()
        body = {**self._head(), "Topics": topics([], _batches(acks), TOPIC_ID)}
        answer = await self.consumer._ask(self.line, ApiKey.SHARE_ACKNOWLEDGE, body)
        self.epoch += 1
        if ErrorCode(answer["ErrorCode"]) == ErrorCode.NONE:
            self._acknowledged(acks, answer, column="ErrorCode")

    def _taken(self) -> dict[Place, AckType]:
        acks, self.acks = self.acks, {}
        return acks

    def _acknowledged(
        self, acks: dict[Place, AckType], answer: Message, *, column: str = "AcknowledgeErrorCode"
    ) -> None:
        codes = {partition: ErrorCode(row[column]) for partition, row in rows(answer).items()}
        for place, kind in acks.items():
            code = codes.get(place[0])
            if code is None:
                raise AssertionError(f"{place} was acknowledged, and not answered: {answer}")
            self.world.seen[f"Acknowledged {code.name}"] += 1
            if code == ErrorCode.NONE and kind is AckType.ACCEPT:
                self.judge.was_confirmed(place)


def _batches(acks: dict[Place, AckType]) -> dict[int, list[tuple[int, int, bytes]]]:
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for (partition, offset), kind in sorted(acks.items()):
        found.setdefault(partition, []).append((offset, offset, bytes([kind])))
    return found
