"""The reports of a running link about itself, kept in the status topic of its source cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

import structlog

from keyway.clusters.core.tree import ClusterName, Distributor
from keyway.clusters.core.trust import CHECKSUM, Seals
from keyway.service import wall_ms
from spark.links.link import link_name
from spark.links.status import (
    LEFT,
    LINK,
    SWITCH,
    TOPIC,
    Json,
    PartitionStatus,
    StatusTopic,
    TopicStatus,
)
from spark.streaming.core.limits import LEFT_OUT_CHARS_MAX
from spark.streaming.core.survey import UNKNOWN_EPOCH, Position, Topic
from spark.streaming.limits import LEFT_ASKED_AT_ONCE, LEFT_KEPT_MS
from spark.streaming.orders import Partition, Result

log = structlog.get_logger("keyway.links")


# Long: one lock guards all that a link tells; each figure has its own way in.
class LinkReport:
    """Counts and states of one link. Batches report from Spark's callback thread, the link's loop
    from its own, so a lock guards every method.
    """

    def __init__(
        self, distributor: Distributor, status: StatusTopic, *, seals: Seals = CHECKSUM
    ) -> None:
        self.link = link_name(distributor.source, distributor.level)
        self.copied_total = 0
        self._seals = str(seals)
        self._status = status
        self._lock = threading.Lock()
        self._topics: dict[str, TopicStatus] | None = None
        self._state: Json = {"target": None, "generation": 0}
        self._told: dict[str, Json] = {}
        self._changed: set[str] = set()  # topics whose rows may be other than those that are told
        self._silent = False
        self.running = False
        self.fault = ""  # why the link waited last, until a query of it is well

    def load(self) -> None:
        """Counts go on from where the last run published them. A status topic that was deleted
        under this run is made anew, and gets all rows again. Raises KafkaException.
        """
        with self._lock:
            if self._status.ensure():
                self._told.clear()
            if self._topics is not None:
                return
            kept = self._status.read()
            self._state |= kept.get(f"{LINK}/{self.link}", {})
            prefix = f"{TOPIC}/{self.link}/"
            self._topics = {
                key.removeprefix(prefix): TopicStatus.of(value)
                for key, value in kept.items()
                if key.startswith(prefix) and value
            }

    # ------------------------------------------------------------------------ targets and switches

    @property
    def target(self) -> ClusterName | None:
        """The cluster that this link copied to last."""
        target = self._state["target"]
        return None if target is None else ClusterName(target)

    @property
    def generation(self) -> int:
        """The generation of the last switch that was carried out."""
        return int(self._state["generation"])

    def topics(self) -> dict[str, TopicStatus]:
        """A copy of the status of each topic; empty before `load`."""
        with self._lock:
            return {name: topic.copy() for name, topic in (self._topics or {}).items()}

    def followed(self) -> list[str]:
        """Topics that were copied, or stopped, when a query began last."""
        with self._lock:
            return [name for name, topic in (self._topics or {}).items() if topic.state != LEFT]

    def knows(self, topic: str) -> bool:
        """Whether this link has copied from the topic."""
        known = (self._topics or {}).get(topic)
        return known is not None and any(row.position >= 0 for row in known.partitions.values())

    def began(self, topic: str, target_id: str) -> bool:
        """Whether this link has begun to copy the topic to that very topic of the target."""
        known = (self._topics or {}).get(topic)
        return known is not None and known.target_id == target_id != ""

    def positions(
        self, target: ClusterName | None = None, target_ids: Mapping[str, str] | None = None
    ) -> dict[Partition, Position]:
        """The positions as last reported, without a generation; with `target` and its topic ids
        only those that were reached by writing to these very topics, or that are owed to the
        target. A report without an id fits none of them.
        """
        if target is not None and target != self.target:
            return {}
        reached = {
            (name, partition): Position(row.position, topic.topic_id, epoch=row.epoch)
            for name, topic in (self._topics or {}).items()
            if target_ids is None or (topic.target_id and topic.target_id == target_ids.get(name))
            for partition, row in topic.partitions.items()
            if row.position >= 0
        }
        owed = {
            (name, partition): position
            for name, topic in (self._topics or {}).items()
            for partition, position in topic.owed.items()
        }
        return reached | owed

    def switch(self) -> Json | None:
        """An operator's order that the link has not carried out yet. Raises KafkaException."""
        wanted = self._status.read(SWITCH).get(f"{SWITCH}/{self.link}")
        if wanted and wanted["generation"] > self._state["generation"]:
            return wanted
        return None

    def switch_wanted(self) -> bool:
        return self.switch() is not None

    def targeted(
        self,
        target: ClusterName,
        generation: int | None = None,
        owed: Mapping[Partition, Position] | None = None,
    ) -> None:
        """Stores the target before the first record goes there. `owed`: positions that it could not
        take. Raises KafkaException.
        """
        with self._lock:
            if generation is None:
                generation = self._state["generation"]
            if (target, generation) == (self._state["target"], self._state["generation"]):
                return
            self._state |= {"target": target, "generation": generation}
            owing = self._owe(owed or {})
            # The link's record is the last: without the others the switch is made once more.
            link = {f"{LINK}/{self.link}": self._with("starting", "")}
            self._status.publish(self._rows(owing) | link)

    def _owe(self, owed: Mapping[Partition, Position]) -> list[str]:
        """Returns the topics whose rows changed."""
        mine: dict[str, dict[int, Position]] = {}
        for (name, partition), position in owed.items():
            mine.setdefault(name, {})[partition] = replace(position, generation=0)
        known = self._topics or {}
        changed = [
            name
            for name in known.keys() | mine.keys()
            if mine.get(name, {}) != (known[name].owed if name in known else {})
        ]
        for name in changed:
            self._topic(name).owed = mine.get(name, {})
        return changed

    # ----------------------------------------------------------------------------- topics, batches

    def planned(
        self,
        topics: Mapping[str, Topic],
        stopped: Mapping[str, str],
        target_ids: Mapping[str, str],
        reached: Mapping[Partition, Position],
        refusals: Mapping[str, str] | None = None,
    ) -> None:
        """The topics that the link follows now, and those it cannot copy, with the reason. Any
        other topic that it knows has been left: its rows are no longer shown. A partition that is
        not in `reached` begins without a position: the old one may be that of a target topic that
        was deleted, and would leave a hole in the new topic. `refusals`: the reasons of topics that
        stopped and are tried again. They are reported as running once a record was written.
        """
        with self._lock:
            for name, topic in topics.items():
                known = self._topic(name)
                why = (refusals or {}).get(name, "")
                known.state, known.reason = ("stopped", why) if why else ("running", "")
                known.left_ms = 0
                known.topic_id = topic.topic_id
                known.target_id = target_ids.get(name, "")
                known.owed = {}  # they are committed at the target
                for row in known.partitions.values():
                    row.position, row.epoch = -1, UNKNOWN_EPOCH
            for (name, partition), position in reached.items():
                if name in topics:
                    row = self._row(name, partition)
                    row.position, row.epoch = position.offset, position.epoch
            for name, reason in stopped.items():
                known = self._topic(name)
                known.state, known.reason, known.left_ms = "stopped", reason, 0
            left = self._others(topics.keys() | stopped.keys())
            for name in left:
                self._topic(name).state, self._topic(name).left_ms = LEFT, wall_ms()
            self._tell(self._now() | self._rows([*topics, *stopped, *left]))

    def _others(self, followed: Set[str]) -> list[str]:
        """Topics that are left now, and were not before. Topics that an earlier version left are
        among them, because it did not record when.
        """
        known = (self._topics or {}).items()
        return [
            name
            for name, topic in known
            if name not in followed and not (topic.state == LEFT and topic.left_ms)
        ]

    def forget_left(self, absent: Callable[[list[str]], Set[str]]) -> None:
        """Forgets a topic that was left a week ago if `absent` finds that the source no longer has
        it. Without this the rows of topics that come and go would grow for ever.
        """
        with self._lock:
            long_ago_ms = wall_ms() - LEFT_KEPT_MS
            known = (self._topics or {}).items()
            left = [
                name for name, topic in known if topic.state == LEFT and topic.left_ms < long_ago_ms
            ]
        asked = left[:LEFT_ASKED_AT_ONCE]
        gone = absent(asked) if asked else set()
        with self._lock:
            for name in asked:
                self._topic(name).left_ms = wall_ms()  # asked for again a week later
            keys = {name: f"{TOPIC}/{self.link}/{name}" for name in sorted(gone)}
            self._status.publish(dict.fromkeys(keys.values()))
            for name, key in keys.items():
                self._told.pop(key, None)
                self._changed.discard(name)
                (self._topics or {}).pop(name, None)

    def lost(self, topic: str, gaps: Mapping[int, int], positions: Mapping[int, Position]) -> None:
        """Records that were deleted before they were copied, behind `positions`. A gap that is seen
        again, because the topic stopped at it, is counted once.
        """
        with self._lock:
            for partition, count in gaps.items():
                row = self._row(topic, partition)
                position = positions[partition].offset
                row.gap += count - (row.gap_counted if row.gap_at == position else 0)
                row.gap_at, row.gap_counted = position, count
                self._changed.add(topic)

    def beyond(self, topic: str) -> dict[int, int]:
        """The positions that were beyond the end of the log when the topic stopped, by partition.
        The log may have grown since, with records that the link has not seen.
        """
        known = (self._topics or {}).get(topic, TopicStatus())
        rows = known.partitions.items()
        return {partition: row.beyond for partition, row in rows if row.beyond >= 0}

    def found_beyond(self, topic: str, positions: Mapping[int, int]) -> None:
        """The topic stops at `positions`, and at no others any more."""
        if positions == self.beyond(topic):
            return
        with self._lock:
            for row in self._topic(topic).partitions.values():
                row.beyond = -1
            for partition, position in positions.items():
                self._row(topic, partition).beyond = position
            self._changed.add(topic)

    def copied(self, result: Result, epoch: int = UNKNOWN_EPOCH) -> None:
        """`epoch`: of the leader of the log that was read."""
        with self._lock:
            row = self._row(result["topic"], result["partition"])
            self._changed.add(result["topic"])
            _reached(row, result["position"], epoch)
            for name in ("copied", "skipped", "repeats", "doubts", "left_out"):
                setattr(row, name, getattr(row, name) + result[name])
            if result["left_out"]:
                place = (result["topic"], result["partition"])
                self._left_out(row, place, result["left_out"], result["last_left_out"])
            if result["last_timestamp_ms"] >= 0:
                row.last_timestamp_ms = result["last_timestamp_ms"]
            self.copied_total += result["copied"]

    def reached(self, positions: Mapping[Partition, Position]) -> None:
        """Positions that a batch has reached while it is still under way: it may take long, and
        commits many times.
        """
        with self._lock:
            for place, position in positions.items():
                self._changed.add(place[0])
                _reached(self._row(*place), position.offset, position.epoch)

    def left_out(self, place: Partition, offset: int) -> None:
        """A record that Spark cannot read."""
        with self._lock:
            row = self._row(*place)
            row.left_out += 1
            self._left_out(row, place, 1, f"offset {offset}: Spark cannot read its timestamp")
            self._changed.add(place[0])

    def _left_out(self, row: PartitionStatus, place: Partition, count: int, last: str) -> None:
        row.last_left_out = last[:LEFT_OUT_CHARS_MAX]
        log.warning(
            "records_left_out",
            link=self.link,
            topic=place[0],
            partition=place[1],
            records=count,
            last=last,
        )

    def runs(self, topic: str) -> None:
        """A record of the topic was written, or there was none to write."""
        with self._lock:
            known = self._topic(topic)
            known.state, known.reason = "running", ""
            self._changed.add(topic)

    def publish(
        self,
        committed_ends: Mapping[Partition, int],
        starts: Mapping[Partition, int] | None = None,
        high_watermarks: Mapping[Partition, int] | None = None,
    ) -> None:
        """`starts`: where the places without a position began. `high_watermarks`: asked for before
        the ends. A commit marker is in both. Raises KafkaException.
        """
        with self._lock:
            for place, committed_end in committed_ends.items():
                row = self._row(*place)
                end = max(committed_end, (high_watermarks or {}).get(place, 0))
                position = max(row.position, (starts or {}).get(place, 0))
                lag = max(0, end - position)
                if (row.log_end, row.lag_records, lag) == (end, 0, 0):
                    continue  # it rests
                row.log_end, row.lag_records = end, lag
                row.open_at = committed_end if position >= committed_end < end else -1
                row.waits_since_ms = (row.waits_since_ms or wall_ms()) if lag else 0
                since_ms = (
                    row.waits_since_ms if row.last_timestamp_ms < 0 else row.last_timestamp_ms
                )
                row.lag_s = max(0.0, wall_ms() - since_ms) / 1_000 if lag else 0.0
                self._changed.add(place[0])
            rows = self._changed & {topic for topic, _ in committed_ends}
            self._tell(self._now() | self._rows(rows))
            self._changed -= rows

    def trouble(self, fault: str) -> None:
        """The link waits. That is published if it can be: a source that is away cannot be told."""
        self.fault = fault
        self._say("waiting", fault)

    def well(self) -> None:
        """The fault is over. A new query alone does not prove it."""
        with self._lock:
            self.fault = ""

    def _now(self) -> dict[str, Json]:
        state = "waiting" if self.fault else "running"
        return {f"{LINK}/{self.link}": self._with(state, self.fault)}

    def ended(self) -> None:
        self._say("ended", "")

    def silence(self) -> None:
        """Tells nothing from now on: another process has the link, and tells newer rows."""
        with self._lock:
            self._silent = True

    def _say(self, state: str, error: str) -> None:
        with self._lock:
            if self._topics is None:
                return  # the last run's target and generation are not known yet, and would be lost
            try:
                link = {f"{LINK}/{self.link}": self._with(state, error)}
                self._tell(link | self._rows(self._topics or ()))
            except Exception:  # noqa: BLE001 - the fault was logged; this only tells others
                return

    def _tell(self, records: dict[str, Json]) -> None:
        """Publishes the records that differ from those published last."""
        if self._silent:
            return
        news = {key: record for key, record in records.items() if self._told.get(key) != record}
        self._status.publish(news)
        self._told |= news

    def _with(self, state: str, error: str) -> Json:
        self.running = state == "running"
        told = {"state": state, "error": error, "seals": self._seals, "updated_ms": wall_ms()}
        return {**self._state, **told}

    def _rows(self, topics: Iterable[str]) -> dict[str, Json]:
        return {f"{TOPIC}/{self.link}/{topic}": self._topic(topic).as_json() for topic in topics}

    def _topic(self, name: str) -> TopicStatus:
        assert self._topics is not None, "loaded"
        return self._topics.setdefault(name, TopicStatus())

    def _row(self, topic: str, partition: int) -> PartitionStatus:
        return self._topic(topic).partitions.setdefault(partition, PartitionStatus())


def _reached(row: PartitionStatus, position: int, epoch: int) -> None:
    if position > row.position and row.waits_since_ms:
        row.waits_since_ms = wall_ms()
    if position >= row.position:
        row.position, row.epoch = position, epoch
