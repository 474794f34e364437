"""`keyway offsets run`: the distributor and the committer of one cluster, round by round.

One thread does all that concerns its own cluster; each link of the tree has another, so that a
target that is away holds up nothing here. Kafka alone keeps its state: a service that was
killed reads everything again and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice, takewhile

import structlog

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError
from keyway.clusters.core.internal import OWN_GROUPS
from keyway.clusters.core.tree import ClusterName
from keyway.kafka.identities import Identities
from keyway.service import wall_ms
from offsets.client import ClusterClient, Partition, TopicFacts
from offsets.commits import CommitSource, ListedCommits, TailedCommits
from offsets.committer import Committer
from offsets.core.entries import Entry, GroupPartition
from offsets.core.plan import Refusal
from offsets.core.switches import SwitchReport
from offsets.distributor import Distributor, Forwarder
from offsets.errors import ClusterAway, NotReadable, OffsetsError
from offsets.index_file import IndexFile
from offsets.limits import (
    BEAT_S,
    DELETED_KEPT_MS,
    LOOKED_AT_ONCE,
    PARTITIONS_MAX,
    PLACES_AT_ONCE,
)
from offsets.metrics import Metrics
from offsets.options import Options
from offsets.partitions import Partitions
from offsets.state_topic import StateTopic
from offsets.switches import Switches

log = structlog.get_logger("keyway.offsets")

STATE_READ_S = 5.0


def followed_group(config: ClustersConfig, client: ClusterClient) -> Callable[[str], bool]:
    """Says of a group's name on the cluster whether the file includes it. Raises ConfigError if the
    file has no `groups`.
    """
    groups = config.groups
    if groups is None:
        raise ConfigError(
            "groups: is missing: which groups follow? Their offsets are committed on the other"
            ' clusters, so name them, as in groups: {include: ["billing*"]}'
        )

    def wanted(name: str) -> bool:
        logical = client.group_of(name)
        own = name.startswith(OWN_GROUPS) or (logical or "").startswith(OWN_GROUPS)
        return logical is not None and not own and groups.takes(logical)

    return wanted


class Service:
    """The service of one cluster, for as long as its process has the lease (turns.py). `close` it.
    One thread makes, uses and closes it.
    """

    def __init__(
        self,
        config: ClustersConfig,
        name: str,
        *,
        metrics: Metrics | None = None,
        identities: Identities | None = None,
        require_lease: Callable[[], None] = lambda: None,
    ) -> None:
        """`require_lease`: as for StateTopic."""
        cluster = config.cluster(name)
        self.config = config
        self.settings = config.offsets
        self.client = ClusterClient(cluster)
        self.metrics = metrics or Metrics()
        self.state_topic = StateTopic(self.client, require_lease=require_lease)
        file = IndexFile(self.settings.state_directory / f"offsets-{name}.sqlite", config.seals())
        self.partitions = Partitions(
            self.client,
            seals=config.seals(),
            file=file,
            cuts=self.state_topic.state.cuts,
            wait_ms=self.settings.interval_ms,
        )
        self.wanted_group = followed_group(config, self.client)
        source = self._source(listed=self.settings.commits == "list")
        self.distributor = Distributor(
            client=self.client,
            source=source,
            partitions=self.partitions,
            state_topic=self.state_topic,
            settings=self.settings,
            linked=self._linked,
            wanted_topic=config.topics.takes,
            now_ms=wall_ms,
        )
        self.committer = Committer(
            client=self.client,
            partitions=self.partitions,
            state_topic=self.state_topic,
            options=Options.of(self.settings),
            now_ms=wall_ms,
            tree=config.checked_tree(),
            source=source,
            follows=self._follows,
        )
        self.switches = Switches(config, self.client, self.state_topic)
        self._identities = identities or Identities(config)
        self._forwarders = _forwarders(config, cluster, self._identified, self._identities.doubt)
        self._threads = ThreadPoolExecutor(max(1, len(self._forwarders)), "keyway-offsets-link")
        self._underway: dict[int, Future[int]] = {}
        self._waiting: list[list[Entry | SwitchReport]] = [[] for _ in self._forwarders]
        self._refreshed: float | None = None
        self._looked: dict[GroupPartition, tuple[Entry, float]] = {}  # the oldest look first
        self._due: dict[GroupPartition, None] = {}  # also those of a round that failed
        self._asked_for: set[str] = set()  # topics
        self._facts: dict[str, TopicFacts] = {}  # by logical topic
        self._turns: list[Partition] = []  # left of the present look at all
        self._error = ""
        self._beat_s = -BEAT_S
        self._state_awaited = False  # it was said that the topic takes long to read

    def _source(self, *, listed: bool) -> CommitSource:
        if listed:
            return ListedCommits(
                self.client, self.wanted_group, wall_ms, interval_ms=self.settings.interval_ms
            )
        return TailedCommits(self.client, self.wanted_group)

    def _follows(self, place: GroupPartition) -> bool:
        groups = self.config.groups
        assert groups is not None, "the service begins with them"
        return groups.takes(place[0]) and self.config.topics.takes(place[1])

    def _linked(self, topic: str) -> bool:
        """Whether links run between these clusters and copy this topic."""
        return self.switches.links_seen and self.config.topics.takes(topic)

    # ----------------------------------------------------------------------------------- rounds

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. Raises ConfigError for a cluster that is not what the file
        says.
        """
        log.info("offsets_follow", cluster=self.client.name, levels=len(self._forwarders))
        while not stop.is_set():
            self.round_safely()
            stop.wait(self.settings.interval_ms / 1_000)

    def round_safely(self) -> bool:
        """Returns False if a cluster is away or a topic cannot be read, which is logged once."""
        try:
            self._identified(self.client.name)
            self.round()
        except OffsetsError as error:
            self.metrics.failures.inc()
            if str(error) != self._error:
                log.warning("offsets_wait", cluster=self.client.name, reason=str(error))
            self._error = str(error)
            if isinstance(error, ClusterAway):  # whoever reads the decisions finds that out
                self._identities.doubt([self.client.name])
            else:
                self._beat()
            return False
        self._error = ""
        self._beat()
        return True

    def _beat(self) -> None:
        """Now and then tells whoever reads the decisions that this service is alive."""
        now = time.monotonic()
        if now - self._beat_s < BEAT_S or self._identities.of(self.client.name) is None:
            return
        with suppress(OffsetsError):  # the next round finds out by itself
            self.state_topic.write_beat(wall_ms(), self._error)
            self._beat_s = now

    def _identified(self, name: str) -> None:
        """Makes sure that the cluster is the right one before anything is written to it. Raises
        ClusterAway, ConfigError.
        """
        if self._identities.of(name) is None and (away := self._identities.look([name])):
            raise ClusterAway(f"{name}: {away[name]}")

    def round(self) -> None:
        """Raises ClusterAway, NotReadable."""
        self.state_topic.ensure()
        if not self.state_topic.read(for_s=STATE_READ_S):
            return self._wait_for_state()
        self._poll()
        if not self.state_topic.read(for_s=STATE_READ_S):  # what was applied here, to judge commits
            return self._wait_for_state()
        # Behind all reading of the state: a topic that was not asked for would count as missing.
        self._refresh()
        self.partitions.read()
        self.metrics.distributed.inc(self.distributor.distribute())
        changed = {place for place, _ in self.state_topic.state.changed}
        self._forward()
        self._decide(changed)
        self._note_cuts()
        self.partitions.save()
        self.metrics.behind.set(self.partitions.behind)
        self.metrics.doubted.set(self.partitions.doubted)

    def _note_cuts(self) -> None:
        """Before the indexes that knew more of a log are given up, also in their file."""
        known = self.state_topic.state.cuts
        found = self.partitions.found_cut
        self.state_topic.write_cuts({at: cut for at, cut in found.items() if known.get(at) != cut})
        found.clear()

    def _wait_for_state(self) -> None:
        """Before the state topic is read to its end, older entries and the committer's own commits
        would count as news.
        """
        if not self._state_awaited:
            log.warning("state_topic_is_being_read", cluster=self.client.name)
        self._state_awaited = True

    def _poll(self) -> None:
        try:
            self.distributor.poll()
        except NotReadable as error:
            if self.settings.commits != "auto":
                raise
            log.warning("commits_are_listed", cluster=self.client.name, reason=str(error))
            self.distributor.source.close()
            source = self._source(listed=True)
            self.distributor.source = self.committer.source = source

    def _refresh(self) -> None:
        """Looks at the topics again, and at the partitions to follow."""
        now = time.monotonic() * 1_000
        left = self.partitions.outdated
        due = self._refreshed is None or now - self._refreshed >= self.settings.refresh_ms
        due = due or bool(left)
        changed = {
            record.place
            for record in self.state_topic.state.changed.values()
            if isinstance(record, Entry)
        }
        if not (due or changed or self.distributor.waiting):
            return
        told = self.state_topic.state.places if due else changed
        wanted = self.distributor.wanted() | {place[1:] for place in told}
        topics = {topic for topic, _ in wanted}
        turn = self._turn(wanted) if due else []
        asked = (topics - self._asked_for) | (left & topics) | {topic for topic, _ in turn}
        if due:
            self._asked_for &= topics
        if due or asked:
            kept = self._asked_for - asked
            known = {topic: facts for topic, facts in self._facts.items() if topic in kept}
            self._facts = known | self.client.facts(asked)
            self._asked_for |= asked
            self.distributor.facts = self.committer.facts = self._facts
        facts = self._facts
        there = [
            (topic, number)
            for topic, number in sorted(wanted)
            if topic in facts and number < facts[topic].partitions
        ]
        self._follow(there)
        if due:
            if self.state_topic.write_tombstones(wall_ms() - DELETED_KEPT_MS):
                self._forget()
            self.switches.look()
            self._refreshed = now
            left.clear()
            # Partitions that are left are followed in the next round, behind the next look at
            # commits: those of a topic that was deleted are gone by then.
            self.partitions.look(turn)

    def _turn(self, wanted: Iterable[Partition]) -> list[Partition]:
        """The next partitions to look at. Each has its turn."""
        self._turns = self._turns or sorted(wanted)
        turn, self._turns = self._turns[:LOOKED_AT_ONCE], self._turns[LOOKED_AT_ONCE:]
        return turn

    def _follow(self, partitions: list[Partition]) -> None:
        if len(partitions) > PARTITIONS_MAX:
            log.warning("too_many_partitions", followed=PARTITIONS_MAX, wanted=len(partitions))
        self.partitions.follow(partitions[:PARTITIONS_MAX], self.distributor.facts)

    def _forward(self) -> None:
        news = self.state_topic.state.news()
        for at, forwarder in enumerate(self._forwarders):
            waiting, underway = self._waiting[at], self._underway.get(at)
            waiting += news
            if underway is None or underway.done():
                if underway is not None:
                    underway.result()  # a bug in the thread is a bug here
                if forwarder.lost:
                    log.warning("entries_go_on_again", level=forwarder.link.level)
                    waiting += self.state_topic.state.travelling()
                    forwarder.lost = False
                self._underway[at] = self._threads.submit(forwarder.forward, list(waiting))
                waiting.clear()

    def _forget(self) -> None:
        """Drops what is kept about groups and partitions that have left the state topic."""
        live = set(self.state_topic.state.places)
        gone = self._looked.keys() - live
        for place in gone:
            del self._looked[place]
        self.committer.forget(gone, {group for group, _, _ in live})
        self.distributor.forget(gone)
        self.metrics.decided(self.committer.rows.values(), ())

    def _decide(self, changed: set[GroupPartition]) -> None:
        """Decides on the places that changed, those that wait for an index, and those that were not
        looked at for a while.
        """
        now = time.monotonic() * 1_000
        since = now - self.settings.refresh_ms
        oldest_first = iter(self._looked)
        old = takewhile(lambda place: self._looked[place][1] <= since, oldest_first)
        self._due |= dict.fromkeys([*sorted(changed), *old])
        now_due = list(islice(self._due, PLACES_AT_ONCE))
        due = self.committer.entries_of(now_due)
        if not due:
            return self._settle(now_due)
        fresh = [entry for entry in due if self._looked.get(entry.place, (None, 0))[0] is not entry]
        before = [self.committer.rows.get(entry.place) for entry in due]
        rows = self.committer.apply(due) if self.settings.apply else self.committer.preview(due)
        delays = [wall_ms() - entry.committed_ms for entry in fresh]
        if delays or rows != before:  # it counts all rows of all groups
            self.metrics.decided(self.committer.rows.values(), delays)
        self._settle(now_due)
        for entry, row in zip(due, rows, strict=True):
            self._looked.pop(entry.place, None)
            if Refusal.NOT_INDEXED in row.refusals:
                self._due[entry.place] = None
            else:
                self._looked[entry.place] = (entry, now)

    def _settle(self, places: Iterable[GroupPartition]) -> None:
        for place in places:
            del self._due[place]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for forwarder in self._forwarders:
            for state_topic in forwarder.state_topics:
                state_topic.close()
        self.distributor.close()
        self.switches.close()
        self.partitions.close()
        self.state_topic.close()


def _forwarders(
    config: ClustersConfig,
    cluster: Cluster,
    identified: Callable[[str], None],
    doubt: Callable[[list[str]], None],
) -> list[Forwarder]:
    """Each forwarder has clients of its own, because it has a thread of its own."""
    return [
        Forwarder(
            link,
            [
                StateTopic(ClusterClient(config.cluster(target)), remember=False)
                for target in link.targets
            ],
            identified,
            doubt,
        )
        for link in config.checked_tree().of(ClusterName(cluster.name))
    ]
