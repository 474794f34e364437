"""What is done to the nodes, one act at a time, and what each act costs their clients."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.nodes.load import Load
from tests.chaos.nodes.site import Nodes
from tests.chaos.site import pause_ms
from tests.rig.gateway_process import GatewayProcess
from tests.rig.patience import wait_until

STILL_S, SILENT_S, FROZEN_S = 20, 10, 4
GONE_S, AT_WORK_S = 60, 10  # longer than the session of a member, 45 s; all have work by its end
BEFORE_NS = 1_000_000_000  # records of the last second of a rest may wait for the act behind it
RECORDS_AFTER = 20


@dataclass(frozen=True, slots=True)
class Span:
    """One act. `touched`: virtual brokers that were, or became, the victim's."""

    act: str
    began_ns: int
    ended_ns: int
    touched: frozenset[int]


@dataclass(frozen=True, slots=True)
class Cost:
    act: str
    pause_s: float  # the longest of a partition
    # By the kind of client: from production to consumer, of partitions whose owner has nothing to
    # do with it.
    others_ns: dict[str, list[int]]


class Director:
    """`spare`: a node that is not running, for the act that adds one. `after`: records of each
    partition, with which an act is over.
    """

    def __init__(
        self,
        nodes: Nodes,
        load: Load,
        names: str,
        spare: str,
        seed: int,
        *,
        after: int = RECORDS_AFTER,
    ) -> None:
        self.after = after
        self.nodes = nodes
        self.load = load
        self.names = names
        self.spare = spare
        self.spans: list[Span] = []
        self.silent: list[str] = []  # members that an act has left without work
        self.dice = random.Random(seed)

    ACTS = (
        *("rolling", "kill", "drain", "move", "still"),
        *("silent_redis", "silent_clients", "add", "redis", "frozen", "gone"),
    )

    def play(self, act: str) -> None:  # noqa: C901 - one case each
        victim = self.dice.choice(self.names)
        node = self.nodes.nodes[victim]
        match act:
            case "rolling":
                for name in self.names:
                    self._restart(name)
            case "restart":
                self._restart(victim)
            case "kill":
                self._span("kill -9", victim, node.kill, self.names.replace(victim, ""))
                self._span("start", victim, node.start, self.names)
            case "gone":
                self._span("gone", victim, lambda: self._gone(node), "")
                self._span("start", victim, node.start, self.names)
            case "drain":
                rest = self.names.replace(victim, "")
                order = self.nodes.order
                self._span("drain", victim, lambda: order(lambda admin: admin.drain(victim)), rest)
                self._span(
                    "undrain", victim, lambda: order(lambda admin: admin.undrain(victim)), ""
                )
            case "move":
                self._span("move", victim, lambda: self._move_to(victim), "")
            case "still":
                self._span("SIGSTOP", victim, lambda: self._still(node.pid, STILL_S), self.names)
            case "silent_redis":
                self._span("no Redis", victim, lambda: self._silent(f"{victim} redis"), self.names)
            case "silent_clients":
                self._span("no clients", victim, lambda: self._silent(f"{victim} clients"), "")
            case "add":
                spare = self.nodes.nodes[self.spare]
                self._span("add", self.spare, spare.start, "")
                self._span("remove", self.spare, spare.stop, self.names)
            case "redis":
                self._span("Redis restarted", "", self.nodes.redis.restart, self.names)
            case "frozen":
                pid = self.nodes.redis.pid
                assert pid is not None
                self._span("Redis frozen", "", lambda: self._still(pid, FROZEN_S), self.names)
            case _:
                raise AssertionError(f"no act {act}")

    def _move_to(self, victim: str) -> None:
        """The first virtual broker of another node; then it is Keyway's choice again."""
        broker = min(owned for owned, owner in self.nodes.owners().items() if owner != victim)
        self.nodes.order(lambda owners: owners.move(broker, victim))
        wait_until(
            lambda: self.nodes.owners().get(broker) == victim, what="the move", deadline_s=30
        )
        self.nodes.order(lambda owners: owners.move(broker, None))

    def _restart(self, name: str) -> None:
        node = self.nodes.nodes[name]
        self._span("stop", name, node.stop, self.names.replace(name, ""))
        self._span("start", name, node.start, self.names)

    def _span(self, what: str, victim: str, work: Callable[[], object], then: str) -> None:
        """`then`: the nodes that have owners' parts afterwards; "": it does not matter."""
        before = self.nodes.owners()
        began_ns = time.monotonic_ns()
        work()
        if then:
            self.nodes.wait_for_owners(then)
        self.load.wait_for_more(self.after)
        after = self.nodes.owners()
        touched = frozenset(
            broker
            for broker in range(1, self.load.brokers + 1)
            if not victim
            or victim in (before.get(broker), after.get(broker))
            or before.get(broker) != after.get(broker)
        )
        self.spans.append(Span(what, began_ns, time.monotonic_ns(), touched))

    def rest(self, seconds: float) -> None:
        began_ns = time.monotonic_ns()
        pause_ms(seconds * 1000)
        self.spans.append(Span("rest", began_ns, time.monotonic_ns() - BEFORE_NS, frozenset()))

    def _still(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            pause_ms(seconds * 1000)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _gone(self, node: GatewayProcess) -> None:
        node.kill()
        pause_ms(GONE_S * 1000)
        self.look_for_silent()

    def look_for_silent(self) -> None:
        self.silent += self.load.silent(AT_WORK_S)

    def _silent(self, way: str) -> None:
        proxies = self.nodes.proxies
        assert proxies is not None
        proxies.silence(way)
        pause_ms(SILENT_S * 1000)
        proxies.speak(way)

    # -------------------------------------------------------------------------------------- figures

    def costs(self) -> list[Cost]:
        found: list[Cost] = []
        partitions = self.load.of_partition()
        kinds = dict.fromkeys(member.host.kind for member in self.load.members)
        by_kind = {kind: self.load.of_partition(kind) for kind in kinds}
        for span in self.spans:
            place = (span.began_ns, span.ended_ns)
            others = {
                kind: [
                    wait_ns
                    for partition, its in of_kind.items()
                    if self.load.leader(partition) not in span.touched
                    for wait_ns in its.waits_ns(*place)
                ]
                for kind, of_kind in by_kind.items()
            }
            longest = max(its.pause_s(*place) for its in partitions.values())
            found.append(Cost(span.act, longest, others))
        return found
