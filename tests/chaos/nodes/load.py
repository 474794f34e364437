"""Records that come all the time, and share consumers of both stock clients that take them. The
value of a record is the time when it was produced: every process of a machine has one clock.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from confluent_kafka import Producer

from tests.chaos.judge import Flush, Processed, Verdict, judge
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember, deliveries_of
from tests.rig.kafka import create_topic, read_partition
from tests.rig.patience import wait_until

KEYS_PER_PARTITION = 10
ARRIVED_S_MAX = 120.0


class Load:
    """`per_second`: records of each partition."""

    def __init__(
        self, bootstrap_servers: str, topic: str, *, brokers: int, partitions: int, per_second: int
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.partitions = partitions
        self.brokers = brokers
        self.per_second = per_second
        self.members: list[ShareMember] = []
        self.produced = 0
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def leader(self, partition: int) -> int:
        """The virtual broker: leaders are set, and brokers stay."""
        return partition % self.brokers + 1

    def join(self, hosts: Sequence[ShareHost], bootstrap: str, group: str) -> None:
        leaders = [[self.leader(at)] for at in range(self.partitions)]
        create_topic(self.bootstrap_servers, self.topic, assignment=leaders)
        for host in hosts:
            member = host.member(bootstrap, group, [self.topic], name=host.kind)
            self.members.append(member)
            member.begin_consume(3_600)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(60)

    def _produce(self) -> None:
        config = {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True}
        producer = Producer({**config, "linger.ms": 0})

        def told(error: object, _message: object) -> None:
            if error is not None:
                self.failed.append(str(error))

        began, sent = time.monotonic(), 0
        while not self._over.wait(0.02):
            due = int((time.monotonic() - began) * self.per_second)
            for number in range(sent, due):
                for partition in range(self.partitions):
                    producer.produce(
                        self.topic,
                        key=b"%d-%d" % (partition, number % KEYS_PER_PARTITION),
                        value=b"%d" % time.monotonic_ns(),
                        partition=partition,
                        on_delivery=told,
                    )
                    self.produced += 1
            sent = max(sent, due)
            producer.poll(0)
        producer.flush(60)

    # ------------------------------------------------------------------------------- what has come

    def places(self) -> set[tuple[str, int, int]]:
        return {delivery.place for member in self.members for delivery in list(member.deliveries)}

    def wait_for_more(self, count: int) -> None:
        """Each partition gets on."""
        seen = [len(member.deliveries) for member in self.members]

        def enough() -> bool:
            new = Counter(
                delivery.partition
                for member, at in zip(self.members, seen, strict=True)
                for delivery in member.deliveries[at:]
            )
            return all(new[partition] >= count for partition in range(self.partitions))

        wait_until(enough, what=f"{count} more records of each partition", deadline_s=90)

    def wait_until_told(self) -> None:
        """Each member has been told of the acknowledgement of a record that was new to all, so of
        all its earlier acknowledgements. On a busy machine the word takes its time in the client.
        """
        before = self.places()

        def told() -> bool:
            return all(
                any(ack.place not in before for ack in list(member.acked))
                for member in self.members
            )

        wait_until(told, what="acknowledgements that are told to each member", deadline_s=90)

    def silent(self, seconds: float) -> list[str]:
        """The members that got nothing in these last seconds, in which all have had keys."""
        since_ns = time.monotonic_ns() - int(seconds * 1e9)
        return [
            member.name
            for member in self.members
            if not member.deliveries or member.deliveries[-1].at_ns < since_ns
        ]

    def wait_until_current(self) -> None:
        """No partition has a backlog: all but the records of the last second have come."""
        last_second = self.per_second * self.partitions
        wait_until(
            lambda: self.produced - len(self.places()) <= last_second,
            what="no backlog",
            deadline_s=ARRIVED_S_MAX,
            every_s=0.25,
        )

    def finish(self, flushes: Sequence[Flush] = ()) -> Verdict:
        """All has come, all members leave; by their own reports."""
        wait_until(
            lambda: len(self.places()) >= self.produced,
            what="all delivered",
            deadline_s=ARRIVED_S_MAX,
        )
        for member in self.members:
            member.end_consume()
            member.close()
        assert not self.failed, self.failed[:3]
        topic = {
            at: read_partition(self.bootstrap_servers, self.topic, at)
            for at in range(self.partitions)
        }
        processed = [
            Processed(delivery, delivery.at_ns) for delivery in deliveries_of(self.members)
        ]
        acked = [answer for member in self.members for answer in member.acked]
        return judge(self.topic, topic, processed, acked, flushes)

    def of_partition(self, kind: str = "") -> dict[int, Arrivals]:
        """What has come to all members, or to those of one kind of client."""
        members = [member for member in self.members if kind in ("", member.host.kind)]
        found: dict[int, list[Delivery]] = {at: [] for at in range(self.partitions)}
        for delivery in deliveries_of(members):
            found[delivery.partition].append(delivery)
        return {at: Arrivals(its) for at, its in found.items()}


class Arrivals:
    """The records of one partition, by the times of their arrival and of their production: a
    campaign of hours asks about hundreds of spans.
    """

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._at_ns = sorted(delivery.at_ns for delivery in deliveries)
        self._made = sorted(
            (int(delivery.value), delivery.at_ns)
            for delivery in deliveries
            if delivery.value is not None
        )

    def pause_s(self, since_ns: int, until_ns: int) -> float:
        """The longest time without a record, which came all the time."""
        first, last = bisect_left(self._at_ns, since_ns), bisect_right(self._at_ns, until_ns)
        times = [since_ns, *self._at_ns[first:last], until_ns]
        return max(later - earlier for earlier, later in pairwise(times)) / 1e9

    def waits_ns(self, since_ns: int, until_ns: int) -> list[int]:
        """From its production to its consumer, of records that were produced in this time."""
        first, last = bisect_left(self._made, (since_ns,)), bisect_left(self._made, (until_ns,))
        return [at_ns - made_ns for made_ns, at_ns in self._made[first:last]]


def p99_ms(waits_ns: Sequence[int]) -> float | None:
    ordered = sorted(waits_ns)
    return ordered[len(ordered) * 99 // 100] / 1e6 if ordered else None
