"""One round: load, strikes, calm, verdict."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from tests.chaos.crew import Crew, Service
from tests.chaos.judge import Flush, Topic, Verdict, judge
from tests.chaos.plan import MEMBERS, Plan, Strike, Victim
from tests.chaos.site import Site, pause_ms
from tests.rig.clients.share_lines import TopicPartitionOffset, delivery_line
from tests.rig.kafka import create_topic, read_partition
from tests.rig.patience import wait_until

UNDER_LOAD_S_MAX = 45.0
CALM_S_MAX = 75.0
BURST_SHARE = 0.4  # of the records are there before anybody is struck; the others trickle in
# The gateway lives on: an outcome stored just before is told with the answer to the fetch that
# brought it, and that may wait 500 ms for records.
LATE_ANSWER_NS = 1_500_000_000
LATE_STAMP_NS = 500_000_000  # a client stamps an answer when it gets to it
ASK_EVERY_MS = 150


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the first kill of a strike to the first delivery that it had to be over for.

    Infrastructure: the first delivery after the last of it was started again. Members alone: the
    first record that a dead one held and another one got. None: there was no such delivery left.
    """

    strike: Strike
    seconds: float | None
    up_seconds: float  # of them until everything that was started again answered


@dataclass(frozen=True, slots=True)
class Fall:
    """A strike as it happened, on the members' monotonic clock."""

    strike: Strike
    killed_ns: int
    back_ns: int  # the last of the infrastructure was started again; members: all were dead
    up_ns: int  # everything answered again
    held: set[TopicPartitionOffset]  # by killed members


@dataclass(slots=True)
class Round:
    plan: Plan
    site: Site
    crew: Crew
    topic: str = ""
    group: str = ""
    flushes: list[Flush] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _falls: list[Fall] = field(default_factory=list)
    _began_ns: int = 0
    _truth: Topic = field(default_factory=dict)

    def run(self) -> Verdict:
        name = f"chaos-{self.plan.seed}-{uuid.uuid4().hex[:6]}"
        self.topic, self.group = name, f"group-{name}"
        create_topic(self.site.kafka.bootstrap_servers, name, partitions=self.plan.partitions)
        self._began_ns = time.monotonic_ns()
        log_from = self.site.log_bytes()
        load = Load(self.site.gateway.bootstrap, name, self.plan)
        self.crew.begin(
            self.site.gateway.bootstrap,
            self.group,
            name,
            work_ms_max=self.plan.work_ms_max,
            seed=self.plan.seed,
        )
        for strike in self.plan.strikes:
            self._wait_until_struck(strike, load)
            self._strike(strike)
        self._calm(load)
        self.crew.end()
        self.recoveries = self._recoveries()
        self.faults += [f"gateway log: {line}" for line in self.site.bugs_logged(log_from)[:3]]
        found = judge(name, self._truth, self.crew.processed(), self.crew.acked(), self.flushes)
        return Verdict(
            found.records,
            found.delivered,
            found.again,
            found.confirmed_again,
            found.lost,
            found.reordered,
            (*self.faults, *found.faults),
        )

    # ------------------------------------------------------------------------------------- strikes

    def _wait_until_struck(self, strike: Strike, load: Load) -> None:
        copied = Victim.OLD_REDIS not in strike.victims

        def reached() -> bool:
            nonlocal copied
            load.go_on()
            share = len({delivery.place for delivery in self.crew.deliveries()}) / self.plan.records
            if not copied and share >= strike.copied_at_share:
                self.site.copy_redis()
                copied = True
            return copied and share >= strike.at_share

        self._waited(reached, f"load for {strike}", UNDER_LOAD_S_MAX)

    def _strike(self, strike: Strike) -> None:
        partitions = self.plan.partitions
        committed = (
            self.site.committed_records(self.group, self.topic, partitions)
            if strike.forgets
            else frozenset()
        )
        killed_ns = time.monotonic_ns()
        dead: list[Service] = []
        for victim, before_ms in zip(strike.victims, (0, *strike.apart_ms), strict=True):
            pause_ms(before_ms)
            if victim in MEMBERS:
                dead += self.crew.kill(victim)
            else:
                self.site.kill(victim, flushed_alive=strike.flushed_alive)
        since_ns = max((fall.back_ns for fall in self._falls), default=0)
        held = self.crew.held_by(dead, since_ns=since_ns)
        pause_ms(strike.down_ms)
        back_ns = time.monotonic_ns()
        for victim, before_ms in zip(strike.returns, (0, *strike.returns_apart_ms), strict=True):
            pause_ms(before_ms)
            if victim in MEMBERS:
                self.crew.replace(victim)
                continue
            self.site.start(victim)
            back_ns = time.monotonic_ns()
            if victim in (Victim.FLUSH, Victim.OLD_REDIS):
                calm = self._calm_until(killed_ns)
                interval_ms = self.plan.pace.commit_interval_ms
                late_ns = LATE_ANSWER_NS if victim is Victim.OLD_REDIS else LATE_STAMP_NS
                told_ns = back_ns + late_ns
                self.flushes.append(Flush(killed_ns, told_ns, committed, calm, interval_ms))
        if not strike.members_only:
            self.site.wait_ready()
        self._falls.append(Fall(strike, killed_ns, back_ns, time.monotonic_ns(), held))

    def _calm_until(self, now_ns: int) -> tuple[tuple[int, int], ...]:
        """The stretches of the round in which the infrastructure was up."""
        falls = [fall for fall in self._falls if not fall.strike.members_only]
        begins = [self._began_ns, *(fall.up_ns for fall in falls)]
        ends = [*(fall.killed_ns for fall in falls), now_ns]
        return tuple(zip(begins, ends, strict=True))

    def _recoveries(self) -> list[Recovery]:
        deliveries = self.crew.deliveries()
        found = []
        for fall in self._falls:
            over = [
                delivery.at_ns - fall.killed_ns
                for delivery in deliveries
                if delivery.at_ns > fall.back_ns
                and (not fall.strike.members_only or delivery.place in fall.held)
            ]
            up_seconds = (fall.up_ns - fall.killed_ns) / 1e9
            found.append(Recovery(fall.strike, min(over) / 1e9 if over else None, up_seconds))
        return found

    # ---------------------------------------------------------------------------------------- calm

    def _calm(self, load: Load) -> None:
        """Until everything that was produced is settled, as Kafka's own tools see the group."""
        self._waited(load.go_on, "load produced", CALM_S_MAX)
        self.faults += load.failures()
        server = self.site.kafka.bootstrap_servers
        self._truth = {
            partition: read_partition(server, self.topic, partition)
            for partition in range(self.plan.partitions)
        }
        produced = sum(len(records) for records in self._truth.values())
        if produced != self.plan.records and not self.faults:
            self.faults.append(f"{self.plan.records} records produced, {produced} in Kafka")
        if not self._waited(self._all_settled, "everything settled", CALM_S_MAX):
            self.faults.append(f"committed {self._positions()} of {self._ends()}")

    def _all_settled(self) -> bool:
        pause_ms(ASK_EVERY_MS)  # each question is a connection to the broker
        return bool(self._truth) and self._positions() == self._ends()

    def _positions(self) -> list[int]:
        positions = self.site.positions(self.group, self.topic, self.plan.partitions)
        # A partition that nothing was ever produced to has nothing to commit.
        return [max(position, 0) for position in positions]

    def _ends(self) -> list[int]:
        return [records[-1][0] + 1 if records else 0 for records in self._truth.values()]

    def _waited(self, done: Callable[[], bool], what: str, deadline_s: float) -> bool:
        try:
            wait_until(done, what=what, deadline_s=deadline_s)
        except TimeoutError as error:
            self.faults.append(str(error))
            return False
        return True

    # ------------------------------------------------------------------------------------ evidence

    def keep(self, folder: Path, verdict: Verdict | None) -> None:
        """Everything that is needed to understand a failed round; no verdict if it broke off."""
        self.site.keep_logs(folder)
        lines = [f"seed {self.plan.seed}: {self.plan}", repr(self.plan), repr(verdict)]
        lines += [
            f"{service.member.name}: {line}"
            for service in self.crew.services
            for line in (*service.troubles, *service.member.notes)
        ]
        (folder / "verdict.txt").write_text("\n".join(lines) + "\n")
        reports = [(delivery.at_ns, delivery_line(delivery)) for delivery in self.crew.deliveries()]
        reports += [
            (
                acked.at_ns,
                f"{acked.member}\tacked\t{acked.at_ns}\t{acked.topic}\t{acked.partition}\t{acked.offset}"
                f"\t{acked.error or 'OK'}",
            )
            for acked in self.crew.acked()
        ]
        text = "\n".join(line for _, line in sorted(reports))
        (folder / "reports.tsv").write_text(text + "\n")


class Load:
    """A stock idempotent producer through the gateway: a burst, then the rest trickles in."""

    def __init__(self, bootstrap: str, topic: str, plan: Plan) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._topic, self._plan = topic, plan
        self._sent = self._told = 0
        self._failures: list[str] = []
        self._began = time.monotonic()

    def go_on(self) -> bool:
        """Sends the records that are due; True when Kafka has taken all of them."""
        passed = (time.monotonic() - self._began) / self._plan.pace.trickle_s
        due = self._plan.records * min(1.0, BURST_SHARE + (1 - BURST_SHARE) * passed)
        while self._sent < due:
            key = b"key-%d" % (self._sent * 7_919 % self._plan.keys)
            self._producer.produce(
                self._topic, key=key, value=b"%d" % self._sent, on_delivery=self._on_delivery
            )
            self._sent += 1
        self._producer.poll(0)
        return self._told == self._plan.records

    def _on_delivery(self, error: object, _message: object) -> None:
        self._told += 1
        if error is not None:
            self._failures.append(str(error))

    def failures(self) -> list[str]:
        """Records that the cluster never took, in the producer's own words."""
        return [f"{len(self._failures)} not produced: {failure}" for failure in self._failures[:1]]
