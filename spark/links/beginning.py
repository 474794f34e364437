"""Where the partitions of a link's next query begin: at its positions on the target, which the
status topic remembers for longer than Kafka, or at the log's start. A topic with a gap, another
topic id, or copies that no position explains stops, unless the policy goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from keyway.clusters.config import ClustersConfig, MessagesSection
from spark.links.link import Link
from spark.links.own_copies import Fresh, topics_copied_before
from spark.links.plan import Plan, by_topic
from spark.links.reports import LinkReport
from spark.links.switch import require_generation
from spark.streaming.core.limits import PARTITIONS_MAX
from spark.streaming.core.survey import (
    UNKNOWN_EPOCH,
    Copied,
    Policy,
    Position,
    Stopped,
    Tail,
    Topic,
    start,
)
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Partition


@dataclass(frozen=True, slots=True)
class Begun:
    """`starts`: where the places of the next query begin. `plan`: the plan without the topics that
    stop. `reached`: the starts of places that have a position on the target.
    """

    starts: dict[Partition, int]
    plan: Plan
    reached: dict[Partition, int]
    epochs: dict[Partition, int]  # of the leaders of the logs, which have all before `starts`


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginnings of a link at its present target. Methods raise KafkaException."""

    config: ClustersConfig
    link: Link
    source: KafkaSide
    target: KafkaSide
    report: LinkReport
    from_start: bool  # also where the target has copies, but the link no position

    def starts(self, plan: Plan) -> Begun:
        committed, positions = self._positions(plan)
        require_generation(committed.values(), self.report, self.link)
        starts: dict[Partition, int] = {}
        reached: dict[Partition, int] = {}
        stopped = dict(plan.stopped)
        renewed: dict[Partition, Position] = {}
        stood = by_topic(positions)
        tails = self.source.tails(plan.places())
        for name, verdict in self._verdicts(plan, positions, tails).items():
            topic = plan.topics[name]
            self.report.lost(name, verdict.gaps, stood.get(name, {}))
            beyond = verdict.beyond if isinstance(verdict, Stopped) else {}
            self.report.found_beyond(name, beyond)
            match verdict:
                case Stopped():
                    stopped[name] = verdict.reason
                case Copied():
                    began = self.report.began(name, plan.target_ids.get(name, ""))
                    for partition, offset in verdict.starts.items():
                        place = (name, partition)
                        starts[place] = offset
                        if place not in positions and not began:
                            continue
                        reached[place] = offset
                        goes_on = Position(
                            offset,
                            topic.topic_id,
                            self.report.generation,
                            _epoch(positions.get(place), offset, topic, tails[place]),
                        )
                        if committed.get(place) != goes_on:
                            renewed[place] = goes_on
        # Of a gap, an older topic, a forgotten one, or a partition that was empty until now, whose
        # first records may be deleted before they are copied: set before the query runs. A process
        # that was frozen since it read them must not set back those of the next one.
        there = {place: (plan.targets[place[0]], place[1]) for place in renewed}
        self.target.set_positions(
            self.link.group,
            {there[place]: position for place, position in renewed.items()},
            {there[place]: committed[place] for place in renewed if place in committed},
        )
        kept = {name: topic for name, topic in plan.topics.items() if name not in stopped}
        epochs = {place: tails[place].epoch for place in starts}
        return Begun(starts, replace(plan, topics=kept, stopped=stopped), reached, epochs)

    def goes_on(self, surveyed: Plan, plan: Plan, unreadable: Mapping[Partition, int]) -> bool:
        """Whether a topic of `surveyed` that stopped at its positions, and so is not in `plan`, can
        be copied now. `unreadable`: offsets that stop a topic once it has come to them.
        """
        held = {name: topic for name, topic in surveyed.topics.items() if name not in plan.topics}
        asked = replace(surveyed, topics=held)
        verdicts = {}
        if held:
            positions = self._positions(asked)[1]
            verdicts = self._verdicts(asked, positions, self.source.tails(asked.places()))
        still = {
            name
            for (name, partition), at in unreadable.items()
            if isinstance(verdict := verdicts.get(name), Copied) and verdict.starts[partition] == at
        }
        return any(
            isinstance(verdict, Copied) for name, verdict in verdicts.items() if name not in still
        )

    def _positions(self, plan: Plan) -> tuple[dict[Partition, Position], dict[Partition, Position]]:
        """The positions of the plan's topics: those that are committed on the target, and all that
        are known.
        """
        places = plan.places()
        back = {plan.targets[name]: name for name in plan.topics}
        found = self.target.positions(
            self.link.group, [(plan.targets[name], p) for name, p in places]
        )
        committed = {(back[name], p): position for (name, p), position in found.items()}
        # Kafka forgets positions that nobody has committed for a week; the status topic does not.
        reported = self.report.positions(self.link.target, plan.target_ids)
        known = {place: reported[place] for place in places if place in reported}
        return committed, known | committed

    def _verdicts(
        self, plan: Plan, positions: Mapping[Partition, Position], tails: Mapping[Partition, Tail]
    ) -> dict[str, Copied | Stopped]:
        """A verdict for each topic of the plan. The tails are asked for after the positions, so no
        position is beyond its end.
        """
        log_starts = self.source.log_starts(plan.places())
        log_ends = {place: tail.end for place, tail in tails.items()}
        stood = {
            place: replace(position, epoch=position.epoch_at(plan.topics[place[0]]))
            for place, position in positions.items()
        }
        cut = by_topic(dict.fromkeys(self.source.cut(stood, tails), True))
        at, low, high = by_topic(positions), by_topic(log_starts), by_topic(log_ends)
        policy = policy_of(self.config.messages)
        verdicts = {
            name: start(
                topic,
                at.get(name, {}),
                low[name],
                high[name],
                policy,
                self.report.beyond(name),
                cut.get(name, {}),
            )
            for name, topic in plan.topics.items()
        }
        stopped: dict[str, Copied | Stopped] = {
            name: Stopped(why)
            for name, why in self._copied_before(plan, positions, verdicts).items()
        }
        return verdicts | stopped

    def _copied_before(
        self,
        plan: Plan,
        positions: Mapping[Partition, Position],
        verdicts: Mapping[str, Copied | Stopped],
    ) -> dict[str, str]:
        """Topics that would be copied from their start although the target has copies of them, or
        may have, with the reason. A topic that this link has begun before is not among them: its
        first batch may have been cut off.
        """
        if self.from_start:
            return {}
        going = {
            name
            for name, verdict in verdicts.items()
            if isinstance(verdict, Copied)
            and not self.report.began(name, plan.target_ids.get(name, ""))
        }
        places = {
            (plan.targets[name], partition): Fresh(plan.logical[name], plan.topics[name].topic_id)
            for name, partition in plan.places()
            if name in going and (name, partition) not in positions
        }
        source, seals = self.link.source, self.config.seals()
        found = topics_copied_before(self.target, self.link.group, source, places, seals)
        return {name: found[there] for name in going if (there := plan.targets[name]) in found}


def _epoch(known: Position | None, offset: int, topic: Topic, tail: Tail) -> int:
    """The epoch that goes with `offset`: that of the position, if it is the same one."""
    stands = known is not None and known.offset == offset
    epoch = known.epoch_at(topic) if known is not None and stands else UNKNOWN_EPOCH
    return tail.epoch if epoch == UNKNOWN_EPOCH else epoch


def policy_of(messages: MessagesSection) -> Policy:
    return Policy(
        create_topics=messages.create_topics,
        stop_on_gap=messages.on_gap == "stop",
        stop_on_recreated=messages.on_recreated == "stop",
        partitions_max=PARTITIONS_MAX,
    )
