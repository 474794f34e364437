"""The switches of links, as one cluster knows them from the status of its own links. It tells of
the switches that an operator has ordered here. Of other clusters' switches it tells when its own
links have passed on everything that stood in its logs after the switch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.tree import ClusterName, Distributor, Tree
from offsets.client import ClusterClient, Partition
from offsets.core.switches import SwitchReport, orders
from offsets.errors import ClusterAway
from offsets.limits import STATUS_READ_S_MAX, STOPPED_TOLD_MAX
from offsets.state_topic import StateTopic

# Keys of the topic: spark/links/status.py.
_LINK, _TOPIC, _SWITCH = "link", "topic", "switch"
_LEFT, _STOPPED = "left", "stopped"  # states of topics
_ORDER = {"target", "generation", "rewind"}  # what a record of a switch has


class Switches:
    """`close` it."""

    def __init__(
        self, config: ClustersConfig, client: ClusterClient, state_topic: StateTopic
    ) -> None:
        self._client = client
        self._state_topic = state_topic
        self._tree: Tree = config.checked_tree()
        self._takes = config.topics.takes
        self._name = ClusterName(client.name)
        self._status: dict[str, dict[str, Any]] = {}
        self._topic = client.compacted(config.messages.status_topic)
        self._there = False
        # Once seen, there are links: a list without the topic proves nothing.
        self.links_seen = False
        self._ends: dict[SwitchReport, Mapping[Partition, int]] = {}  # of logs when it was heard of

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        """A record that nobody can read changes nothing, as for the links."""
        if key is None:
            return
        name = key.decode(errors="replace")
        try:
            found = json.loads(value) if value else None
        except (ValueError, RecursionError):
            return
        if found is None:
            self._status.pop(name, None)
        elif isinstance(found, dict) and (
            not name.startswith(f"{_SWITCH}/") or found.keys() >= _ORDER
        ):
            self._status[name] = found

    def look(self) -> None:
        """Raises ClusterAway, NotReadable."""
        try:
            with self._client.asking(self._topic.name):
                # Not asked for again: the answer lists all topics.
                self._there = self._there or self._topic.exists()
                self.links_seen |= self._there
                if self._there and not self._topic.read(self._take, for_s=STATUS_READ_S_MAX):
                    return
        except ClusterAway:
            self._there = False  # it may have been deleted
            raise
        known = self._state_topic.state.switches
        told = [*self._ordered(), *self._through()]
        news = [order for order in told if known.get((order.place, order.source)) != order]
        self._state_topic.write_told(news)

    def _ordered(self) -> list[SwitchReport]:
        """What an operator has ordered for the links of this cluster."""
        found = []
        for link in self._tree.of(self._name):
            order = self._status.get(f"{_SWITCH}/{_link_name(link)}")
            if order is None:
                continue
            state = self._status.get(f"{_LINK}/{_link_name(link)}", {})
            generation = int(order["generation"])
            found.append(
                SwitchReport(
                    link.source,
                    link.level,
                    self._name,
                    generation,
                    str(order["target"]),
                    bool(order["rewind"]),
                    int(state.get("generation", 0)) >= generation,
                )
            )
        return found

    def _through(self) -> list[SwitchReport]:
        """Switches of other clusters' links, once the links from here have passed on all that stood
        here after the switch.
        """
        found = []
        known = self._state_topic.state.switches
        for order, link in orders(list(known.values()), self._tree):
            if self._name not in link.allowed or self._name == order.target or not order.done:
                continue
            mine = known.get((order.place, self._name))
            told = mine is not None and mine.generation >= order.generation
            if mine is not None and told and not mine.stopped:
                continue
            try:
                left = self._left(order, link)
            except ClusterAway:  # a partition without a leader: nobody knows what it has
                continue
            if mine is not None and told and left is not None:
                left &= mine.stopped  # the others were passed on, whatever has come since
            if left is None or len(left) > STOPPED_TOLD_MAX:
                continue
            said = (order.generation, order.target, order.rewind)
            through = SwitchReport(order.cluster, order.level, self._name, *said, done=True)
            found.append(replace(through, stopped=frozenset(left)))
            if not left:
                self._ends.pop(order, None)
        return found

    def _left(self, order: SwitchReport, link: Distributor) -> set[str] | None:
        """The topics of which not everything has been passed on, if all of them have stopped. None:
        more will be passed on, or nobody knows.
        """
        lower = [below for below in self._tree.of(self._name) if below.level < link.level]
        positions: dict[tuple[str, Partition], int] = {}
        stopped: set[tuple[str, str]] = set()
        unbegun = self._unbegun() if lower else {}
        for below in lower:
            name = _link_name(below)
            if f"{_LINK}/{name}" not in self._status:
                return None  # it has never run: nothing tells what it has passed on
            positions |= {(name, place): start for place, start in unbegun.items()}
            for topic, status in self._topics(name):
                if status.get("state") == _STOPPED:
                    stopped.add((name, topic))
                for number, row in status.get("partitions", {}).items():
                    positions[name, (topic, int(number))] = _passed_to(row)
        if order not in self._ends:
            self._ends[order] = self._client.ends({place for _, place in positions})
        ends = self._ends[order]
        left = {
            (name, place[0])
            for (name, place), position in positions.items()
            if position < ends.get(place, 0)
        }
        return {topic for _, topic in left} if left <= stopped else None

    def _unbegun(self) -> dict[Partition, int]:
        """Where a link begins with each partition of the topics that follow. Of one that it has
        not begun, because it is new, or has stopped from the first, the link tells nothing.
        """
        topics = self._client.partitions_here()
        return self._client.starts(
            (topic, partition)
            for topic, count in topics.items()
            if self._takes(topic)
            for partition in range(count)
        )

    def _topics(self, link: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The topics that a link follows, by logical names, and what it says of them."""
        prefix = f"{_TOPIC}/{link}/"
        for key, status in self._status.items():
            if not key.startswith(prefix) or status.get("state") == _LEFT:
                continue
            logical = self._client.topic_of(key.removeprefix(prefix))
            if logical is not None:
                yield logical, status

    def close(self) -> None:
        self._topic.close()


def _passed_to(row: Mapping[str, Any]) -> int:
    """The link has no position in a partition of which it has copied nothing yet. Without lag there
    is nothing in it to copy.
    """
    position = int(row["position"])
    return position if position >= 0 or row["lag_records"] else int(row["log_end"])


def _link_name(link: Distributor) -> str:
    """The link's name as spark/links/link.py makes it."""
    return f"{link.source}-level-{link.level}"
