"""The indexes of the partitions that are followed on one cluster, read by one consumer.

`follow` adds partitions, `read` goes on for a while, `answered` drives a search of the core and
reads again the ranges it asks for: from the rows kept of a partition's end, or from Kafka.
"""

# Long: one consumer reads them all, and what it meets concerns one index or another.
from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.core.copies import COPY_HEADER, Stood, judge
from keyway.clusters.core.trust import Seals
from keyway.kafka.compacted import consumed
from keyway.kafka.log_ends import Tail
from keyway.kafka.to_ends import Unread, place_of
from offsets.client import ClusterClient, Partition, TopicFacts
from offsets.core.index import EPOCH_NOT_KNOWN, PartitionIndex
from offsets.core.model import Cut, ReadRange, Rows, Search, Stream
from offsets.errors import ClusterAway
from offsets.followed import Columns, Followed
from offsets.index_file import IndexFile
from offsets.limits import (
    FETCH_BYTES_MIN,
    FETCH_WAIT_MS_MAX,
    LOGGED_PLACES_MAX,
    READ_S_MAX,
    RECENT_ROWS,
    RECENT_ROWS_MAX,
    RECENT_ROWS_MIN,
    SAVED_AT_ONCE,
    SAVED_S,
)
from offsets.read_again import ReadAgain

log = structlog.get_logger("keyway.offsets")
Answer = TypeVar("Answer")
Asked = TypeVar("Asked", bound=Hashable)


class Partitions:
    """The partitions of one cluster. `file` keeps their indexes over a restart, and `cuts` has the
    cuts of logs that are known. A record is read within `wait_ms`. Call `close` in the end.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        seals: Seals,
        file: IndexFile | None = None,
        cuts: Mapping[Partition, Cut] | None = None,
        wait_ms: int = FETCH_WAIT_MS_MAX,
    ) -> None:
        self._client = client
        self._file = file
        self._unsaved: dict[Partition, float] = {}  # since when they are due, the oldest first
        self._seals = seals
        self._consumer = client.consumer(
            wait_ms=min(wait_ms, FETCH_WAIT_MS_MAX), bytes_min=FETCH_BYTES_MIN
        )
        self._again = ReadAgain(client, self._add)
        self._followed: dict[Partition, Followed] = {}
        self._unread = Unread()
        self._places: dict[tuple[str, int], Partition] = {}  # by the topic's name here
        self._streams: dict[Stream, Stream] = {}  # each once
        self._cuts = {} if cuts is None else cuts
        self.found_cut: dict[Partition, Cut] = {}  # since the start, each with the known ones
        self._former: dict[Partition, int] = {}  # ends of logs that were left as created anew
        self._denied: set[str] = set()  # topics of which it was said
        self.doubted = 0  # headers that were not believed
        # Topics of partitions that were left: the facts with which they were followed are old.
        self.outdated: set[str] = set()

    # -------------------------------------------------------------------------------- following

    def follow(self, partitions: Iterable[Partition], facts: Mapping[str, TopicFacts]) -> None:
        """Follows partitions from the starts of their logs, or from where the file's indexes end.
        `facts` has all their topics. Raises ClusterAway.
        """
        new = [partition for partition in partitions if partition not in self._followed]
        if not new:
            return
        assigned = []
        starts = self._client.starts(new, partly=True)
        ends = self._client.ends(starts, partly=True)
        stored = self._stored(new, facts, ends)
        # One without a leader is followed later: it keeps no other waiting.
        for (topic, partition), end in ends.items():
            start = starts[topic, partition]
            name = self._client.topic_here(topic)
            assert name is not None, "its start is known"
            index = stored.get((topic, partition))
            if index is None:
                own = Stream(self._client.name, topic, partition, facts[topic].topic_id)
                index = PartitionIndex(self._streams.setdefault(own, own), start)
            index.forget(start)
            index.cut = self._cut_of((topic, partition), index.own.life)
            index.former_end = max(self._former.pop((topic, partition), 0), index.former_end)
            self._followed[topic, partition] = Followed(index)
            if index.end < end:
                self._unread.ends[topic, partition] = end
            self._places[name, partition] = (topic, partition)
            at, epoch = index.behind_last
            assigned.append(TopicPartition(name, partition, at, leader_epoch=epoch))
        try:
            self._consumer.incremental_assign(assigned)
        except KafkaException as error:
            raise ClusterAway(f"{self._client.name}: {error.args[0].str()}") from error

    def _stored(
        self,
        partitions: Collection[Partition],
        facts: Mapping[str, TopicFacts],
        ends: Mapping[Partition, int],
    ) -> dict[Partition, PartitionIndex]:
        """The file's indexes of these very topics, without those that know records which are gone
        from a log's end.
        """
        found = {} if self._file is None else self._file.load(partitions)
        same = {
            partition: index
            for partition, index in found.items()
            if index.own.cluster == self._client.name
            if index.own.life == facts[partition[0]].topic_id != ""
        }
        for partition, index in same.items():
            if index.cut is not None:  # its state topic may be another one now
                self.found_cut.setdefault(partition, index.cut)
            if index.end > ends.get(partition, index.end):
                self._note_cut(partition, index)
        return {
            partition: index
            for partition, index in same.items()
            if index.end <= ends.get(partition, -1)
            if index.cut == self._cut_of(partition, index.own.life)
        }

    def _cut_of(self, partition: Partition, life: str) -> Cut | None:
        known = [cuts[partition] for cuts in (self._cuts, self.found_cut) if partition in cuts]
        cut: Cut | None = None
        for one in known:
            cut = one.besides(cut) if one.life == life else cut
        return cut

    def _note_cut(self, partition: Partition, index: PartitionIndex) -> None:
        """The log of the topic as `index` knows it has lost its end, unless the topic is another
        one by now. If in truth only a new leader was behind, no record counts as replaced: those of
        its epoch are behind all that the index knows.
        """
        if index.epoch != EPOCH_NOT_KNOWN and index.own.life:
            cut = Cut(index.own.life, index.end, index.epoch)
            self.found_cut[partition] = cut.besides(self._cut_of(partition, cut.life))

    def save(self, *, everything: bool = False) -> None:
        """Some of the indexes that changed a while ago, or all that changed."""
        if self._file is None:
            return
        now = time.monotonic()
        due = [
            partition
            for partition, since in self._unsaved.items()
            if everything or now - since > SAVED_S
        ]
        due = due if everything else due[:SAVED_AT_ONCE]
        indexes: dict[Partition, PartitionIndex | None] = {}
        for partition in due:
            del self._unsaved[partition]
            followed = self._followed.get(partition)
            indexes[partition] = None if followed is None else followed.index
        self._file.save(indexes)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Stops following partitions that are gone, or whose topic was created again."""
        left = []
        for topic, partition in partitions:
            if self._followed.pop((topic, partition), None) is not None:
                name = self._client.topic_here(topic)
                assert name is not None, "it was followed"
                del self._places[name, partition]
                self._unread.leave((topic, partition))
                self._again.forget((topic, partition))
                self._unsaved[topic, partition] = 0.0
                left.append(TopicPartition(name, partition))
        if left:
            self._consumer.incremental_unassign(left)

    def index(self, partition: Partition) -> PartitionIndex | None:
        """None until it has been read to the end that its log had when it was followed, and while a
        range of it cannot be read again.
        """
        followed = self._followed.get(partition)
        if followed is None or partition in self._unread.ends or self._again.why_not(partition):
            return None
        return followed.index

    @property
    def behind(self) -> int:
        """Partitions that have not been read to their ends yet."""
        return len(self._unread.ends)

    def read(self, *, for_s: float = READ_S_MAX) -> int:
        """Reads on until all ends are reached or time is up. Returns how many records it read.
        Raises ClusterAway.
        """
        if not self._followed:
            return 0
        until = time.monotonic() + for_s
        count = 0
        while True:
            wait = 0.05 if self.behind else 0.0
            messages = _consumed(self._consumer, wait, self._client.name)
            count += self._take(messages)
            if time.monotonic() > until or (not messages and not self.behind):
                return count

    def read_to_ends(self, *, for_s: float) -> bool:
        """Reads to the present end of every partition that has a leader. Returns False if time was
        up before. Raises ClusterAway.
        """
        until = time.monotonic() + for_s
        ends = self._client.ends(list(self._followed), partly=True)
        while any(self._followed[partition].index.end < end for partition, end in ends.items()):
            if time.monotonic() > until:
                return False
            self._take(_consumed(self._consumer, 0.05, self._client.name))
        return True

    def _take(self, messages: Collection[Message]) -> int:
        fresh: dict[Partition, Columns] = {}
        ends: dict[Partition, int] = {}
        epochs: dict[Partition, int | None] = {}
        cut: set[Partition] = set()
        for message in messages:
            place = self._places.get(place_of(message))
            offset = message.offset()
            if place is None or offset is None or place in cut:
                continue  # it is not followed any more
            error, followed = message.error(), self._followed[place]
            if followed.goes_back(offset, error, ends.get(place, 0)):
                index = followed.index
                self._former[place] = max(index.former_end, index.end)
                self._note_cut(place, index)
                cut.add(place)
            elif error is None:
                self._add(fresh.setdefault(place, Columns()), message, place)
                ends[place] = offset + 1
                epochs[place] = epoch = message.leader_epoch()
                followed.index.read_epoch(offset, epoch)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = max(offset, ends.get(place, 0))
                fresh.setdefault(place, Columns())
                self._unread.leave(place)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._not_readable(place[0])
        self._begin_anew(cut, "log_was_cut")
        kept_max = RECENT_ROWS // max(1, len(self._followed))
        kept_max = max(RECENT_ROWS_MIN, min(RECENT_ROWS_MAX, kept_max))
        for place, columns in fresh.items():
            if place in cut:
                continue
            followed = self._followed[place]
            followed.take(columns, ends[place], kept_max=kept_max)
            if (last := epochs.get(place)) is not None:
                followed.index.epoch = last
            self._unread.reached(place, ends[place])
            self._unsaved.setdefault(place, time.monotonic())
        return sum(len(columns.offsets) for columns in fresh.values())

    def _not_readable(self, topic: str) -> None:
        """Its groups are not indexed as long as this user may not read it."""
        if topic not in self._denied:
            log.warning("topic_not_readable", cluster=self._client.name, topic=topic)
            self._denied.add(topic)

    def _add(self, columns: Columns, message: Message, place: Partition) -> None:
        offset, (_, timestamp) = message.offset(), message.timestamp()
        assert offset is not None
        topic, _ = place
        headers = _copy_headers(message)
        if headers:
            stood = Stood(topic, timestamp, message.key(), message.value())
            judged = judge(headers, stood, seals=self._seals)
            self.doubted += len(judged.doubts)
            if judged.copy is not None:
                origin = judged.copy.origin
                key = Stream(str(origin.cluster), origin.topic, origin.partition, origin.topic_id)
                stream = self._streams.setdefault(key, key)
                columns.add(offset, timestamp, stream, origin.offset)
                return
        columns.add(offset, timestamp, self._followed[place].index.own, offset)

    def look(self, partitions: Iterable[Partition]) -> None:
        """Takes in log starts that retention has moved. Leaves partitions that are gone, whose
        topic was created again, or that have fewer records than were read; `follow` begins anew
        with them. Raises ClusterAway.
        """
        asked = [partition for partition in partitions if partition in self._followed]
        if not asked:
            return
        starts = self._client.starts(asked, partly=True)
        tails = self._client.tails(asked)
        # Asked last: if the topic is still the same, so it was for the questions before.
        ids = self._client.identities({topic for topic, _ in asked})
        cut = self._cut(starts, tails)
        anew = []
        for partition in asked:
            index = self._followed[partition].index
            topic_id, count = ids.get(partition[0], (None, 0))
            # Of a partition without a leader the end is not known.
            no_tail = Tail(index.end if partition[1] < count else -1, None)
            end = tails.get(partition, no_tail).offset
            if topic_id == index.own.life and index.end <= end and partition not in cut:
                index.forget(starts.get(partition, 0))
                continue
            anew.append(partition)
            if topic_id is not None:
                self._former[partition] = max(index.former_end, index.end)
            if topic_id == index.own.life:
                self._note_cut(partition, index)
        self._begin_anew(anew, "topic_created_anew")

    def _cut(
        self, starts: Mapping[Partition, int], tails: Mapping[Partition, Tail]
    ) -> set[Partition]:
        """Partitions that have another leader than that of the last record, and lack records which
        their indexes know. Others may have taken the places of these, and the consumer, which finds
        it out, too, may not be connected yet. Raises ClusterAway.
        """
        asked = {}
        for partition, tail in tails.items():
            at, epoch = self._followed[partition].index.behind_last
            known = epoch != EPOCH_NOT_KNOWN and tail.epoch is not None
            if known and tail.epoch != epoch and starts.get(partition, at) <= at <= tail.offset:
                asked[partition] = (at, epoch)
        found = self._client.cut(asked)
        for partition, is_cut in found.items():
            epoch_now = tails[partition].epoch
            if is_cut is False and epoch_now is not None:
                self._followed[partition].index.epoch = epoch_now  # it has all of them
        return {partition for partition, is_cut in found.items() if is_cut}

    def _begin_anew(self, partitions: Collection[Partition], why: str) -> None:
        """Leaves them; `follow` begins with them at the starts of their logs."""
        if not partitions:
            return
        shown = [f"{topic}-{at}" for topic, at in sorted(partitions)[:LOGGED_PLACES_MAX]]
        log.warning(why, partitions=len(partitions), first=shown)
        self.leave(partitions)
        self.outdated |= {topic for topic, _ in partitions}

    # -------------------------------------------------------------------------------- searching

    def answered(self, partition: Partition, search: Search[Answer]) -> Answer:
        """The answer of a search in this partition's index. Raises ClusterAway."""
        answers = self.all_answered({partition: (partition, search)})
        if partition not in answers:
            told = f"{partition[0]}-{partition[1]}: {self._again.why_not(partition)}"
            raise ClusterAway(f"{self._client.name}: a range could not be read again: {told}")
        return answers[partition]

    def all_answered(
        self, searches: Mapping[Asked, tuple[Partition, Search[Answer]]]
    ) -> dict[Asked, Answer]:
        """The answers of searches in the indexes of their partitions. What has to be read again
        from Kafka is read together: one after the other, each would wait for a fetch of its own.
        A search whose partition cannot be read has no answer; `index` has none either then. Raises
        ClusterAway.
        """
        answers: dict[Asked, Answer] = {}
        waiting: dict[Asked, ReadRange] = {}
        rows: dict[Asked, Rows] = {}
        for asked, (_, search) in searches.items():
            try:
                waiting[asked] = next(search)
            except StopIteration as stop:
                answers[asked] = stop.value
        while waiting:
            wishes = {asked: (searches[asked][0], wish) for asked, wish in waiting.items()}
            rows = self._rows(wishes)
            for asked, found in rows.items():
                try:
                    waiting[asked] = searches[asked][1].send(found)
                except StopIteration as stop:
                    del waiting[asked]
                    answers[asked] = stop.value
            for asked in [each for each in waiting if self._again.why_not(searches[each][0])]:
                del waiting[asked]
        return answers

    def _rows(self, wishes: Mapping[Asked, tuple[Partition, ReadRange]]) -> dict[Asked, Rows]:
        """The rows of at least some of the wishes: one range of each partition is read again at a
        time.
        """
        found: dict[Asked, Rows] = {}
        again: dict[Partition, tuple[int, int]] = {}
        waiting: dict[Partition, list[Asked]] = {}
        for asked, (partition, wish) in wishes.items():
            followed = self._followed[partition]
            first = max(wish.first, followed.index.start)
            last = min(wish.last, followed.index.end - 1)
            kept = Rows([], [], [], []) if first > last else followed.kept(first, last)
            if kept is not None:
                found[asked] = kept
            elif again.setdefault(partition, (first, last)) == (first, last):
                waiting.setdefault(partition, []).append(asked)
        for partition, rows in (self._again.read(again) if again else {}).items():
            found |= dict.fromkeys(waiting[partition], rows)
        return found

    def close(self) -> None:
        if self._file is not None:
            self.save(everything=True)
            self._file.close()
        self._consumer.close()
        self._again.close()


def _copy_headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or ()
    return [(name, value) for name, value in headers if name == COPY_HEADER]


def _consumed(consumer: Consumer, wait_s: float, cluster: str) -> list[Message]:
    """Records and ends of partitions; errors that pass by themselves are left out. Raises
    ClusterAway.
    """
    try:
        return consumed(consumer, wait_s)
    except KafkaException as error:
        raise ClusterAway(f"{cluster}: {error.args[0].str()}") from error
