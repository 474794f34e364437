"""Each second's faults of a history of several nodes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.sim.nodes.process import Process

if TYPE_CHECKING:
    from tests.sim.nodes.consumer import Consumer
    from tests.sim.nodes.world import World

NAMES = "abcdefgh"  # of nodes


class Trouble:
    def __init__(self, world: World) -> None:
        self.world = world
        self._losses = Random(world.seed)

    def every_second(self) -> None:
        if self.world.calm:
            return
        self.world.timeline.after(1_000, self.every_second)
        faults, rng = self.world.faults, self.world.rng
        self._trouble_redis()
        for process in self.world.living():
            self._trouble_node(process)
        names, wanted = NAMES[: self.world.options.nodes_max], self.world.wanted
        fresh = [name for name in names if name not in wanted]
        if fresh and rng.random() < faults.join:
            wanted.append(fresh[0])
            self.world.note("Joins", fresh[0])
            self.world.start_later(fresh[0], 0)
        if rng.random() < faults.leader:
            moved = rng.randrange(self.world.options.partitions)
            self.world.leaders[moved] = self.world.any_broker()
            self.world.epochs[moved].append(len(self.world.records[moved]))
            self.world.judge.leader_moved(moved)
            self.world.topology = self.world.topology_now()
            self.world.note("Leader", self.world.leaders)
            for process in self.world.living():
                self._look_later(process)
        if rng.random() < faults.coordinator:
            self.world.coordinator = self.world.any_broker()
            self.world.note("Coordinator", self.world.coordinator)
        self._orders()
        for consumer in self.world.consumers:
            self._trouble_consumer(consumer)

    def _orders(self) -> None:
        """Operators ask any node."""
        faults, rng, world = self.world.faults, self.world.rng, self.world
        nodes = [process for process in world.living() if process.server.listens]
        if not nodes:
            return
        asked, name = rng.choice(nodes), rng.choice(nodes).name
        if rng.random() < faults.drain:
            ends = rng.random() < 0.5
            world.note("Undrain" if ends else "Drain", name)
            world.judge.disturbed()
            asked.order(lambda owners: owners.undrain(name) if ends else owners.drain(name))
        if rng.random() < faults.place:
            broker = world.any_broker()
            world.note("Place", f"{broker} {name}")
            world.judge.disturbed()
            asked.order(lambda owners: owners.move(broker, name))

    def _look_later(self, process: Process) -> None:
        delay_ms = self.world.rng.choice((0, 100, 2_000))
        self.world.timeline.after(delay_ms, lambda: process.call(process.cluster.look))

    def _trouble_redis(self) -> None:
        faults, rng, redis = self.world.faults, self.world.rng, self.world.redis
        if rng.random() < faults.redis_down and not redis.down:
            redis.down = True
            self._until(rng.randint(100, 3_000), "RedisDown", self._redis_up)
        if rng.random() < faults.redis_frozen and not redis.frozen:
            redis.frozen = True
            self._until(rng.randint(100, 9_000), "RedisFrozen", redis.thaw)

        if self._losses.random() < faults.members_lost:
            lost_ms = self._losses.choice((0, 100, 300, 1_000, 60_000))
            self.world.note("MembersLost", f"{lost_ms} ms")
            redis.lose_members(lost_ms)

    def _redis_up(self) -> None:
        self.world.redis.down = False

    def _until(self, ms: int, what: str, end: Callable[[], None], detail: object = "") -> None:
        """A trouble with Redis that has begun."""
        self.world.note(what, f"{detail} {ms} ms")
        self.world.judge.disturbed(redis=True)

        def over() -> None:
            self.world.say(f"{what} over", detail)
            self.world.judge.disturbed(redis=True)
            end()

        self.world.timeline.after(ms, over)

    def _trouble_node(self, process: Process) -> None:
        faults, rng = self.world.faults, self.world.rng
        if rng.random() < faults.kill:
            self.world.note("Killed", process.name)
            process.kill()
        elif rng.random() < faults.pause and not process.paused:
            process.pause()
            self._until(rng.randint(100, 20_000), "Paused", process.go_on, process.name)
        elif rng.random() < faults.stop:
            self._stop("Stops", process)
        elif rng.random() < faults.go_for_good and self.world.may_spare(process.name):
            self.world.wanted.remove(process.name)
            self._stop("GoesForGood", process)
        else:
            self._trouble_network(process)

    def _stop(self, what: str, process: Process) -> None:
        self.world.judge.disturbed()
        self.world.note(what, process.name)
        process.stop()

    def _trouble_network(self, process: Process) -> None:
        faults, rng, link = self.world.faults, self.world.rng, process.link
        if rng.random() < faults.silence and not link.silent:
            link.silent = True
            self._until(rng.randint(200, 12_000), "Silence", link.speak, process.name)
        elif rng.random() < faults.late and not link.late_ms:
            link.late_ms = rng.choice((200, 1_000, 3_000))

            def on_time() -> None:
                link.late_ms = 0.0

            self._until(rng.randint(500, 8_000), "Late", on_time, process.name)
        elif rng.random() < faults.cut_off and not process.cut_off:
            process.cut_off = True
            self.world.note("CutOff", process.name)

            def reached() -> None:
                process.cut_off = False

            self.world.timeline.after(rng.randint(200, 10_000), reached)

    def _trouble_consumer(self, consumer: Consumer) -> None:
        faults, rng = self.world.faults, self.world.rng
        if not consumer.alive:
            return
        if rng.random() < faults.leave:
            self.world.note("Leaves", consumer.member)
            consumer.leave()
            self.world.begin_later(consumer, rng.randint(100, 5_000))
        elif rng.random() < faults.die:
            self.world.note("Dies", consumer.member)
            consumer.die()
            self.world.begin_later(consumer, rng.randint(100, 5_000))
        elif rng.random() < faults.disconnect and consumer.lines:
            self.world.note("Disconnected", consumer.member)
            lines = sorted(consumer.lines, key=lambda line: line.id)
            rng.choice(lines).hang_up()
