"""The last 15 minutes of every group and of each of its topics: records produced, delivered and
settled, and the lag. A sample is taken with a look at the lag (lag.py), so that all figures are of
one moment.

The node keeps `HISTORIES_MAX` of them. Beyond that a group at work takes the place of the one in
which nothing was delivered or settled for longest: a crowd of groups that only join has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.core.health_lines import first_named
from gateway.core.history import History, Sample
from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Lags
from gateway.operations.lag_sums import LagSum
from gateway.operations.limits import HISTORIES_MAX, STOPPED_GROUPS_NAMED, STOPPED_MS
from gateway.operations.portions import Portions
from gateway.windows.record_flow import RecordFlow

WHOLE = ""  # in place of a topic: of the whole group
_NOTHING = History()


@dataclass(slots=True)
class GroupHistories:
    lags: Lags
    flow: RecordFlow
    group: Callable[[str], ShareGroup | None]
    now_ms: Callable[[], int]
    _of: dict[tuple[str, str], History] = field(default_factory=dict)  # the busiest last

    def __post_init__(self) -> None:
        self.lags.on_look(self.sample)

    def of(self, group: str, topic: str = WHOLE) -> History:
        return self._of.get((group, topic), _NOTHING)

    def topics(self, group: str) -> dict[str, History]:
        """The histories of the group's topics, `WHOLE` among them."""
        return {topic: histories for (name, topic), histories in self._of.items() if name == group}

    def stopped(self, group: str) -> bool:
        """Whether the group has no member, and its lag has grown since it settled the last
        record.
        """
        known = self.group(group)
        if known is None or known.members:
            return False
        stood_ms, growth = self.of(group).growth_since_it_stood()
        return stood_ms >= STOPPED_MS and growth > 0

    def warnings(self) -> list[str]:
        """A line for each group that stands still; of many, the first by name and their number."""
        names = sorted(name for name, topic in self._of if topic == WHOLE and self.stopped(name))
        lines = (
            f"group {name} has no member, and its lag grows: {self.of(name)[-1].lag} records"
            for name in names
        )
        return first_named(lines, len(names), STOPPED_GROUPS_NAMED, "so do {} more groups")

    async def sample(self, portions: Portions) -> None:
        at_ms = self.now_ms()
        sums = await self.lags.sums(portions)
        for group, topic in list(self._of):
            known = sums.get(group)
            if known is None or (topic != WHOLE and topic not in known.topics):
                del self._of[group, topic]
        portions.begin()
        for group, known in sums.items():
            self._sample(group, known, at_ms)
            await portions.give_way()

    def _sample(self, group: str, known: LagSum, at_ms: int) -> None:
        produced, logs, delivered, settled = 0, 0, 0, 0
        for topic, topic_sum in known.topics.items():
            sent, done = self.flow.of(group, topic)
            self._add(
                group,
                topic,
                Sample(at_ms, topic_sum.produced, topic_sum.logs, sent, done, topic_sum.records),
            )
            produced, logs = produced + topic_sum.produced, logs + topic_sum.logs
            delivered, settled = delivered + sent, settled + done
        self._add(group, WHOLE, Sample(at_ms, produced, logs, delivered, settled, known.records))

    def _add(self, group: str, topic: str, sample: Sample) -> None:
        history = self._of.get((group, topic))
        if history is None:
            if len(self._of) >= HISTORIES_MAX:
                if not (sample.delivered or sample.settled):
                    return
                del self._of[next(iter(self._of))]
            history = self._of[group, topic] = History()
        elif (history[-1].delivered, history[-1].settled) != (sample.delivered, sample.settled):
            self._of[group, topic] = self._of.pop((group, topic))
        history.add(sample)
