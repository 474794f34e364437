"""The rules, judged from outside of all nodes: by what consumers got and were answered, by the
owners that each node sees, and by the claims in the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.store.base import WindowKey
from gateway.core.routing.ownership import Standing
from gateway.routing.limits import SESSION_MS
from tests.sim.checkers import CheckFailure
from tests.sim.nodes.process import Process
from tests.sim.nodes.timeline import Timeline

Place = tuple[int, int]  # partition, offset

# A planned move takes some beats; a dead node's virtual brokers wait for its session's end.
MOVED_MS = 2_500
# A node may not know yet that a partition has another leader, and claim once more.
TURNS_MAX = 2
# A node that did not reach Redis takes nobody for dead before another session is over.
DOUBTS_MS = SESSION_MS


@dataclass(slots=True)
class Hold:
    member: str
    until_ms: int  # then somebody else may have the record


class Judge:
    def __init__(
        self,
        timeline: Timeline,
        records: dict[int, list[bytes | None]],
        *,
        grace_ms: int,
        slack_ms: int,
    ) -> None:
        self.timeline = timeline
        self.records = records
        self.grace_ms = grace_ms
        self.slack_ms = slack_ms  # clocks of nodes differ
        self.holds: dict[Place, Hold] = {}
        self.worked: set[Place] = set()  # a member was done with it, and has said so
        self.confirmed: set[Place] = set()  # … and was answered
        self.delivered_count = 0
        self.again = 0
        self.fenced_ms: list[int] = []
        # By window: the claimer, and how often claimers took turns while nothing moved.
        self.turns: dict[WindowKey, tuple[str, int]] = {}
        self.newest: dict[WindowKey, int] = {}
        self.disturbed_ms = timeline.now_ms  # the last fault or plan that concerns owners
        self.away_ms = 0  # Redis was away from somebody
        self._next: dict[int, int] = {}  # by partition: all before are worked

    # ---------------------------------------------------------------------------------- consumers

    def delivered(self, member: str, place: Place, until_ms: int) -> None:
        """`until_ms`: the end of its lock, for a member that began to count before it asked."""
        partition, offset = place
        log, now_ms = self.records[partition], self.timeline.now_ms
        if offset >= len(log):
            raise CheckFailure("Delivery", f"{place} does not exist")
        self.delivered_count += 1
        self.again += place in self.worked
        if now_ms >= until_ms:
            return  # The member hears of it too late to rely on it; its acknowledgement is refused.
        if place in self.confirmed:
            raise CheckFailure("TwiceAfterAck", f"{place} to {member}")
        key = log[offset]
        others = (
            [place]
            if key is None
            else [(partition, other) for other, its in enumerate(log) if its == key]
        )
        for other in others:
            hold = self.holds.get(other)
            if hold is not None and hold.member != member and now_ms < hold.until_ms:
                raise CheckFailure("OneOwnerPerKey", f"{place} to {member}, {other} is with {hold}")
            if other[1] < offset and other not in self.worked:
                raise CheckFailure("PerKeyOrder", f"{place} of {key!r} to {member} before {other}")
        self.holds[place] = Hold(member, until_ms)

    def let_go(self, member: str, place: Place) -> None:
        hold = self.holds.get(place)
        if hold is not None and hold.member == member:
            del self.holds[place]

    def working_done(self, member: str, place: Place) -> None:
        """It is about to be accepted."""
        self.worked.add(place)
        self.let_go(member, place)

    def was_confirmed(self, place: Place) -> None:
        self.confirmed.add(place)

    def line_lost(self, member: str) -> None:
        """One of its connections broke. The node gives the member's records to others after the
        grace, also while the member works and has not noticed.
        """
        until_ms = self.timeline.now_ms + self.grace_ms - self.slack_ms
        for hold in self.holds.values():
            if hold.member == member:
                hold.until_ms = min(hold.until_ms, until_ms)

    def forgotten(self, member: str) -> None:
        for place in [place for place, hold in self.holds.items() if hold.member == member]:
            del self.holds[place]

    # --------------------------------------------------------------------------------------- claims

    def claimed(self, node: str, key: WindowKey, generation: int, taken: bool) -> None:
        """By its answer's side: at the store."""
        if not taken:
            return
        if generation < self.newest.get(key, 0):
            raise CheckFailure("Generations", f"{key}: {node} claims under {generation}")
        if generation > self.newest.get(key, 0):
            self.turns.pop(key, None)
        self.newest[key] = generation
        before, turns = self.turns.get(key, (node, 0))
        self.turns[key] = (node, turns + (before != node))
        if turns >= TURNS_MAX and before != node:
            raise CheckFailure("TakingTurns", f"{key} at {generation}: {before} and {node}")

    def leader_moved(self, partition: int) -> None:
        self.turns = {key: turn for key, turn in self.turns.items() if key.partition != partition}

    def fenced(self, node: str) -> None:  # noqa: ARG002
        self.fenced_ms.append(self.timeline.now_ms)

    # --------------------------------------------------------------------------------------- owners

    def disturbed(self, *, redis: bool = False) -> None:
        self.disturbed_ms = self.timeline.now_ms
        if redis:
            self.away_ms = self.timeline.now_ms

    def look_at_owners(self, processes: list[Process], brokers: range) -> None:
        """No virtual broker is without an owner for longer than the bound, and when all is quiet
        it has exactly one.
        """
        now_ms = self.timeline.now_ms
        up = [
            process
            for process in processes
            if not process.dead and process.server.listens and not process.leaving
        ]
        quiet_ms = now_ms - self.disturbed_ms
        bound_ms = SESSION_MS + MOVED_MS
        if self.away_ms and now_ms - self.away_ms < 2 * SESSION_MS + DOUBTS_MS:
            bound_ms += DOUBTS_MS
        if not up or quiet_ms < bound_ms:
            return
        for broker in brokers:
            owners = [
                process
                for process in up
                if process.owners.standing(broker) is not Standing.ELSEWHERE
            ]
            if len(owners) != 1:
                views = {process.name: process.owners.routing for process in up}
                raise CheckFailure("OneOwner", f"{broker}: {owners} after {quiet_ms} ms: {views}")
