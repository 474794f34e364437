"""One repartition of a topic, as all nodes know it: how far it is, and how it goes on.

The new partitions are the topic's own (it grows), or those of a new topic that takes its place: it
moves, to any number of them. They are numbered behind the old ones either way, so that one number
is one log.

    MARKED ─► CREATED ─► SHOWN ─► OPEN ─► DRAINING ─► FINISHED        MARKED, CREATED ─► ABORTED

Each phase is a record in Redis. A step writes the next one in the place of the one that it has read
(`version`), so of several nodes that try, one succeeds; what it did before that, it may do again.

- MARKED: all nodes are to know that partitions from `before` on are hidden from clients.
- CREATED: Kafka has the new partitions, clients do not see them. Once that is `prepared`, no node
  tells anybody how many the topic has.
- SHOWN: Metadata has them. Old partitions may still get records of keys that move.
- OPEN: whoever produced before has been told, or was disconnected. `boundaries`, by old partition,
  are where its log ended then: what is below is the past of the keys that move.
- DRAINING: no producer's batch of before can come any more. `boundaries` have been raised to where
  the old logs ended then.
- FINISHED: every group has passed the boundaries; the topic is as any other.
- ABORTED: it has new partitions that nobody saw. They stay hidden: Kafka deletes none.

A topic that moves is hidden whole until it is shown. Its producers are told by their operator, not
by Metadata: so there is nobody to wait for before OPEN, which lasts until the old topic has had no
record for long enough.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from gateway.core.repartition.partitioners import Partitioner


class Phase(Enum):
    MARKED = "marked"
    CREATED = "created"
    SHOWN = "shown"
    OPEN = "open"
    DRAINING = "draining"
    FINISHED = "finished"
    ABORTED = "aborted"


class Move(Enum):
    CREATE = "create"
    PREPARE = "prepare"
    SHOW = "show"
    OPEN = "open"
    RAISE = "raise"
    FINISH = "finish"
    ABORT = "abort"


NEXT = {
    (Phase.MARKED, Move.CREATE): Phase.CREATED,
    (Phase.CREATED, Move.PREPARE): Phase.CREATED,
    (Phase.CREATED, Move.SHOW): Phase.SHOWN,
    (Phase.SHOWN, Move.OPEN): Phase.OPEN,
    (Phase.OPEN, Move.RAISE): Phase.DRAINING,
    (Phase.DRAINING, Move.FINISH): Phase.FINISHED,
    (Phase.CREATED, Move.ABORT): Phase.ABORTED,
    # Whoever creates the partitions may be at it, or have died between that and saying so.
    (Phase.MARKED, Move.ABORT): Phase.ABORTED,
}
RUNNING = frozenset({Phase.MARKED, Phase.CREATED, Phase.SHOWN, Phase.OPEN, Phase.DRAINING})
_HOLDING = frozenset({Phase.SHOWN, Phase.OPEN, Phase.DRAINING})
_HIDDEN = frozenset({Phase.MARKED, Phase.CREATED, Phase.ABORTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The times of a repartition in ms, as the node that began it is configured. All nodes keep to
    them.
    """

    adoption_ms: int  # producers may ask for Metadata by themselves; then they are disconnected
    settle_ms: int  # a producer's late records arrive so soon after its first ones elsewhere
    late_ms: int  # no record of an older routing comes so long after OPEN
    consumer_hold_ms: int = 3_600_000  # consumer groups are waited for so long after SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    topic: str
    topic_id: str  # hexadecimal
    before: int  # partitions
    after: int  # the new ones are those from `before` on
    partitioner: Partitioner | None  # None: its records cannot tell
    pace: Pace
    phase: Phase = Phase.MARKED
    version: int = 1
    prepared: bool = False
    began_ms: int = 0  # these are Redis's clock
    shown_ms: int = 0
    opened_ms: int = 0
    raised_ms: int = 0
    finished_ms: int = 0
    boundaries: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()  # Key-Shared groups that had a position in the topic when SHOWN
    consumers: tuple[str, ...] = ()  # plain groups, classic or KIP-848, that had one then
    given_up: tuple[str, ...] = ()  # those of them that had not passed when their time was over
    unordered: tuple[str, ...] = ()  # groups whose order across the cut nobody keeps
    into: str = ""  # the new topic; "": it grows
    into_id: str = ""  # of CREATED and later

    def moved(self, move: Move, **facts: Any) -> Repartition:  # noqa: ANN401 - fields of this
        return replace(self, phase=NEXT[self.phase, move], version=self.version + 1, **facts)

    @property
    def runs(self) -> bool:
        return self.phase in RUNNING

    @property
    def shows_new(self) -> bool:
        """Clients see the new partitions."""
        return self.phase not in _HIDDEN

    @property
    def shown(self) -> int:
        """Partitions of the topic itself that clients see."""
        return self.after if self.shows_new and not self.into else self.before

    @property
    def new_topic(self) -> str:
        """The topic of the new partitions."""
        return self.into or self.topic

    @property
    def new_topic_id(self) -> str:
        return self.into_id if self.into else self.topic_id

    @property
    def first(self) -> int:
        """The number of partition 0 of the new partitions' topic."""
        return self.before if self.into else 0

    @property
    def holds(self) -> bool:
        """Records of its new partitions may have to wait for those of its old ones."""
        return self.phase in _HOLDING

    def is_before(self, other: Repartition) -> bool:
        """Whether this is an earlier phase, or an earlier repartition of a topic of this name."""
        return (self.began_ms, self.version) < (other.began_ms, other.version)

    def place_of(self, number: int) -> tuple[str, int]:
        """The topic and the partition there of a number below `after`."""
        if number < self.before:
            return self.topic, number
        return self.new_topic, number - self.first

    def sources_of(self, number: int) -> range:
        """The old partitions that the keys of a new one may come from."""
        if self.into:
            return range(self.before)
        source = number % self.before
        return range(source, source + 1)


def to_text(record: Repartition) -> str:
    fields = asdict(record)
    fields["phase"] = record.phase.value
    fields["partitioner"] = None if record.partitioner is None else record.partitioner.value
    return json.dumps(fields, separators=(",", ":"))


def from_text(text: str | bytes) -> Repartition:
    """Raises ValueError, KeyError, TypeError."""
    fields: Mapping[str, Any] = json.loads(text)
    partitioner = fields["partitioner"]
    return Repartition(
        **{
            **fields,
            "phase": Phase(fields["phase"]),
            "partitioner": None if partitioner is None else Partitioner(partitioner),
            "pace": Pace(**fields["pace"]),
            "boundaries": tuple(fields["boundaries"]),
            "groups": tuple(fields["groups"]),
            "consumers": tuple(fields.get("consumers", ())),
            "given_up": tuple(fields.get("given_up", ())),
            "unordered": tuple(fields["unordered"]),
        }
    )
