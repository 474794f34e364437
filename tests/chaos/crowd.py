"""A topic moves into a new one under load, with stock clients: consumers are closed and opened
again on both, then producers on the new one. A Key-Shared group, a classic and a KIP-848 one.

Judged: of each key every record arrived in each group, and each one only when the one before was
done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic_ns, sleep

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    Consumed,
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.gateway_process import GatewayProcess
from tests.rig.patience import wait_until
from tests.rig.repartitions import repartition, status, wait_for_phase

IDEMPOTENT = ("partitioner=murmur2_random", "enable.idempotence=true")
NEXT_TOPIC = 1_000  # the partitions of a second topic are numbered from here on (plain_consumer.py)
MOMENTS = ("marked", "open", "moved", "draining", "finished")


@dataclass
class Crowd:
    """A Key-Shared group, plain ones and their producers."""

    old: str
    new: str
    producers: list[KeyedProducer]
    open_producer: Callable[[int, str, int], KeyedProducer]
    open_member: Callable[[list[str]], ShareMember]  # of these topics
    open_consumer: Callable[[str, str], PlainConsumer]  # of these topics and a group
    plain: tuple[str, ...]
    before: int = 8
    after: int = 3
    members: list[ShareMember] = field(default_factory=list)
    consumers: dict[str, list[PlainConsumer]] = field(default_factory=dict)
    worked: list[list[Consumed]] = field(default_factory=list)

    def move_producers(self) -> None:
        """One after the other, as a rolling restart does; each has keys of its own."""
        for at, producer in enumerate(self.producers):
            sent = sum(producer.end().values())
            self.producers[at] = self.open_producer(at, self.new, sent)

    def all_are_served(self) -> bool:
        return all(each.consumed for opened in self.consumers.values() for each in opened)

    def groups(self) -> list[list[Consumed]]:
        of_shared_group = [each for worked in self.worked for each in list(worked)]
        return [of_shared_group, *map(consumed_by, self.consumers.values())]

    def all_over(self, partitions: range) -> bool:
        return all({each.partition for each in group} >= set(partitions) for group in self.groups())


def crowd_of(
    hosts: ShareHost,
    front: str,
    old: str,
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms | None,
    *,
    transactions: bool = False,
) -> Crowd:
    """All of one client library: 200 keys, 120 records/s. `java_programs` None: librdkafka.
    `transactions`: of a second each, of which every fourth is aborted.
    """
    shared = fresh_name("shared")

    def producer(at: int, name: str, sent: int) -> KeyedProducer:
        words = [f"sent.before={sent}"]
        if transactions:
            words += [f"transactional.id={old}-{at}", "transaction.records=60"]
        if java_programs is not None:
            return KeyedProducer.java(java_programs, front, name, 100 * at, 100, 60, *words)
        return KeyedProducer.librdkafka(front, name, 100 * at, 100, 60, *words, *IDEMPOTENT)

    def member(topics: list[str]) -> ShareMember:
        return hosts.member(front, shared, topics)

    def consumer(topics: str, group: str) -> PlainConsumer:
        words = ["group.protocol=" + group.split("-")[0], "isolation.level=read_committed"]
        if java_programs is not None:
            return PlainConsumer.java(java_programs, front, topics, group, 50, *words)
        return PlainConsumer.librdkafka(front, topics, group, 50, *words)

    producers = [producer(at, old, 0) for at in range(2)]
    plain = (fresh_name("classic"), fresh_name("consumer"))
    return Crowd(old, old + ".new", producers, producer, member, consumer, plain)


@contextmanager
def at_work(crowd: Crowd, topics: list[str]) -> Iterator[None]:
    """Two members of each group that read these topics; they leave at the end."""
    members = [crowd.open_member(topics) for _ in range(2)]
    consumers = {
        group: [crowd.open_consumer(",".join(topics), group) for _ in range(2)]
        for group in crowd.plain
    }
    for group, opened in consumers.items():
        crowd.consumers.setdefault(group, []).extend(opened)
    try:
        with working(members, topics) as worked:
            crowd.worked.append(worked)
            yield
    finally:
        for member in members:
            member.close()
        for opened in consumers.values():
            for consumer in opened:
                consumer.end()


@contextmanager
def working(members: Sequence[ShareMember], topics: Sequence[str] = ()) -> Iterator[list[Consumed]]:
    """They work for a while on what a poll brought, and accept it with the next poll. What they had
    is in the list once a poll has come back. `topics`: which they read, if there are several.
    """
    ended = Event()
    worked: list[Consumed] = []

    def work(member: ShareMember) -> None:
        while not ended.is_set():
            came = member.poll(0.5)
            if came:
                sleep(0.03)
            done_ns = monotonic_ns()
            for each in came:
                key, value = (each.key or b"").decode(), int(each.value or b"0")
                number = NEXT_TOPIC * topics.index(each.topic) if topics else 0
                number += each.partition
                worked.append(Consumed(each.at_ns, done_ns, number, key, value))

    threads = [Thread(target=work, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    try:
        yield worked
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def move(crowd: Crowd, node: GatewayProcess, during: Callable[[str], None]) -> Mapping[str, int]:
    """From the first record to the last one; `during` is called at each of MOMENTS. What was
    sent.
    """
    old, new, after = crowd.old, crowd.new, crowd.after
    try:
        with at_work(crowd, [old]):
            wait_until(lambda: crowd.all_over(range(crowd.before)), what="traffic", deadline_s=90)
            plan = repartition(node, old, partitions=after, into=new)
            assert (plan["refusals"], plan["before"], plan["after"]) == ([], crowd.before, after)
            repartition(node, old, partitions=after, into=new, execute=True)
            during("marked")
            wait_for_phase(node, old, "open")
        with at_work(crowd, [old, new]):
            during("open")
            crowd.move_producers()
            during("moved")
            wait_until(
                lambda: crowd.all_over(range(NEXT_TOPIC, NEXT_TOPIC + after)),
                what="records of the new topic before the end",
                deadline_s=90,
            )
            wait_for_phase(node, old, "draining", "finished", within_s=120)
            during("draining")
            sent = {key: count for each in crowd.producers for key, count in each.end().items()}
            wait_until(lambda: have_all(sent, *crowd.groups()), what="all records", deadline_s=120)
            wait_for_phase(node, old, "finished", within_s=120)
            during("finished")
    finally:
        for producer in crowd.producers:
            producer.kill()
    for group in crowd.groups():
        assert all(each.number >= 0 for each in group), "records of an aborted transaction"
        assert_each_after_the_one_before(group, sent)
    assert status(node, old)["given_up"] == []
    assert status(node, old)["late_records"] == 0
    return sent


def have_all(sent: Mapping[str, int], *groups: Sequence[Consumed]) -> bool:
    """Whether each of the groups has had every record."""
    total = sum(sent.values())
    return all(len({(each.key, each.number) for each in list(group)}) == total for group in groups)
