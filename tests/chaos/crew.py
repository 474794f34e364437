"""The stock clients of a run: three processes with two share consumers each, driven like services.

In each process one member acknowledges implicitly (poll, poll, poll ...), the other explicitly:
poll, work, acknowledge, commit. Both go on after errors, as a service would.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.chaos.judge import Processed
from tests.chaos.plan import Victim
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.share_lines import Acked, Delivery, TopicPartitionOffset
from tests.rig.clients.share_members import MemberFailed, ShareHost, ShareMember

COMMIT_S_MAX = 4.0  # below the locks: a record not committed by then is somebody else's soon
CONSUME_S_MAX = 300  # longer than any round
ENDED = "the host process ended"
KINDS = (Victim.LIBRDKAFKA, Victim.LIBRDKAFKA, Victim.JAVA)


class Service:
    """One member and the thread that drives it until `stop`, or until its process is dead."""

    def __init__(self, member: ShareMember, *, work_ms_max: int | None, seed: int) -> None:
        self.member = member
        self.work_ms_max = work_ms_max  # None: implicit acknowledgement
        self.troubles: list[str] = []
        self._done: dict[tuple[int, str, int, int], int] = {}
        self._dice = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=member.name)
        self._thread.start()

    def processed(self) -> list[Processed]:
        explicit = self.work_ms_max is not None
        return [
            Processed(delivery, self._done.get(_identity(delivery)) if explicit else delivery.at_ns)
            for delivery in list(self.member.deliveries)
        ]

    def begin_stop(self) -> None:
        self._stopping.set()
        if self.work_ms_max is None:
            with suppress(BrokenPipeError):
                self.member.begin("stop")

    def join(self) -> None:
        self._thread.join(60)
        if self._thread.is_alive():
            self.troubles.append("does not end")

    def _run(self) -> None:
        turn = self._consume if self.work_ms_max is None else self._work
        while not self._stopping.is_set():
            if not self._tried(turn):
                return
        self._tried(self.member.close)

    def _tried(self, action: Callable[[], None]) -> bool:
        """False if the process is dead."""
        try:
            action()
        except BrokenPipeError:
            return False
        except MemberFailed as failure:
            self.troubles.append(str(failure))
            return ENDED not in str(failure)
        return True

    def _consume(self) -> None:
        self.member.command("consume", CONSUME_S_MAX * 1_000, seconds_max=CONSUME_S_MAX + 30)

    def _work(self) -> None:
        assert self.work_ms_max is not None
        batch = self.member.poll(0.2)
        if not batch:
            return
        time.sleep(self._dice.uniform(0, self.work_ms_max) / 1000)  # the application's work
        now = time.monotonic_ns()
        self._done.update({_identity(delivery): now for delivery in batch})
        self.member.acknowledge("ACCEPT", batch)
        self.member.commit(COMMIT_S_MAX)


def _identity(delivery: Delivery) -> tuple[int, str, int, int]:
    return (delivery.at_ns, *delivery.place)


class Crew:
    """Processes live as long as the run, members as long as a round. Killed ones are replaced."""

    def __init__(self, programs: JavaPrograms) -> None:
        self._programs = programs
        self._hosts: list[ShareHost] = []
        self._dead: list[ShareHost] = []  # their pipes stay open while somebody may write to them
        self._at_work: dict[ShareHost, list[Service]] = {}
        self.services: list[Service] = []  # of the round, the dead ones among them

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self._hosts = [self._host(kind) for kind in KINDS]
            yield
        finally:
            for host in (*self._hosts, *self._dead):
                host.stop()

    def _host(self, kind: Victim) -> ShareHost:
        return ShareHost.java(self._programs) if kind is Victim.JAVA else ShareHost.librdkafka()

    def begin(self, bootstrap: str, group: str, topic: str, *, work_ms_max: int, seed: int) -> None:
        self._place = (bootstrap, group, topic)
        self._work_ms_max, self._seed = work_ms_max, seed
        self.services, self._at_work = [], {}
        for host in self._hosts:
            self._join(host)

    def _join(self, host: ShareHost) -> None:
        bootstrap, group, topic = self._place
        for explicit in (False, True):
            member = host.member(bootstrap, group, [topic], name=host.kind, explicit=explicit)
            service = Service(
                member,
                work_ms_max=self._work_ms_max if explicit else None,
                seed=self._seed,
            )
            self.services.append(service)
            self._at_work.setdefault(host, []).append(service)

    def kill(self, kind: Victim) -> list[Service]:
        """SIGKILL to one process of that kind; its members."""
        host = next(known for known in self._hosts if known.kind == kind.value)
        host.kill()
        self._hosts.remove(host)
        self._dead.append(host)
        return self._at_work.pop(host)

    def replace(self, kind: Victim) -> None:
        """A new process of that kind, whose members join."""
        host = self._host(kind)
        self._hosts.append(host)
        self._join(host)

    def deliveries(self) -> list[Delivery]:
        return [
            delivery for service in self.services for delivery in list(service.member.deliveries)
        ]

    def processed(self) -> list[Processed]:
        return [processed for service in self.services for processed in service.processed()]

    def acked(self) -> list[Acked]:
        return [acked for service in self.services for acked in list(service.member.acked)]

    def complaints(self) -> Counter[str]:
        """Complaints of the clients: failed commands, error events, acknowledgements that
        were refused (counted by record).

        UnknownServerException is the Java client's own word for an acknowledgement whose connection
        ended, with Kafka's brokers too (tests/integration/crashes/test_crashes.py); of a bug of the
        gateway its log would tell.
        """
        found: Counter[str] = Counter()
        for service in self.services:
            kind, member = service.member.host.kind, service.member
            for text in (*service.troubles, *member.notes):
                said = text.removeprefix(f"{member.name}: ")
                if said != ENDED:
                    found[f"{kind}: {said}"] += 1
            for answer in member.acked:
                if answer.error is not None:
                    found[f"{kind}: acknowledgement {answer.error}"] += 1
        return found

    def held_by(self, dead: Sequence[Service], *, since_ns: int) -> set[TopicPartitionOffset]:
        """Delivered to them last of all, since an earlier strike, and not confirmed to anybody."""
        names = {service.member.name for service in dead}
        in_time = sorted(self.deliveries(), key=lambda delivery: delivery.at_ns)
        last = {
            delivery.place: delivery.member for delivery in in_time if delivery.at_ns > since_ns
        }
        confirmed = {acked.place for acked in self.acked() if acked.error is None}
        return {place for place, name in last.items() if name in names} - confirmed

    def end(self) -> None:
        """Every living member finishes its records, and leaves."""
        for service in self.services:
            service.begin_stop()
        for service in self.services:
            service.join()
