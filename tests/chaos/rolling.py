"""Rolling restarts with stock clients: `make campaign NAME=rolling ARGS="--rounds n"`.

Scenario 4, after the test that Pulsar 3 failed in a quarter of its runs. Two members are slow (they
take 10 records at once) and paused, a third takes 500. 1,000 records come for keys of the third, it
takes its records, accepts nothing and leaves; the two go on, it comes back, then each of the two is
closed and opened again in turn while 1,000 more records come over 1,000 keys. No key may ever go
backwards, and every record must arrive. The seed draws each member's library and the gaps between
the steps.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.embedded.jars import build_dir
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.plan import QUICK
from tests.chaos.seeds import asked_seeds, played
from tests.chaos.site import Site, pause_ms
from tests.rig.clients.java_programs import compile_programs
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, ShareMember, accepted_places, deliveries_of
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import Sent, create_topic, produce
from tests.rig.operating import keys_of, members_of
from tests.rig.patience import wait_until

RECORDS = 1_000  # of each half
OWN_KEYS = 50  # that the first half is spread over
SLOW, QUICK_MEMBER = 10, 500  # max.poll.records
ARRIVED_S_MAX = 60.0
GAPS_MS = (0, 20, 100, 100, 300)


@dataclass(slots=True)
class Rolling:
    """One round on a running gateway. Raises AssertionError, TimeoutError, MemberFailed."""

    gateway: GatewayProcess
    kafka: KafkaCluster
    hosts: Mapping[str, ShareHost]  # by kind
    seed: int
    topic: str = field(init=False)
    group: str = field(init=False)
    members: list[ShareMember] = field(default_factory=list)  # all there ever were

    def __post_init__(self) -> None:
        self.topic = self.group = f"rolling-{self.seed}-{uuid.uuid4().hex[:6]}"

    def run(self) -> None:
        dice = random.Random(self.seed)
        create_topic(self.kafka.bootstrap_servers, self.topic)
        kinds = [dice.choice(sorted(self.hosts)) for _ in range(3)]
        slow = [self._open(kind, SLOW) for kind in kinds[:2]]
        third = self._open(kinds[2], QUICK_MEMBER, explicit=True)
        self._joined([*slow, third])
        keys = keys_of(members_of(self.gateway, self.group), third.name, OWN_KEYS)
        self._produce([(keys[at % OWN_KEYS], b"%d" % at) for at in range(RECORDS)])
        assert third.poll_some(), "the third member takes its keys"
        third.close()
        for member in slow:
            member.begin_consume()
        pause_ms(dice.choice(GAPS_MS))
        third = self._open(kinds[2], QUICK_MEMBER)
        third.begin_consume()
        self._produce([(b"key-%d" % at, b"again") for at in range(RECORDS // 2)])
        for at in range(2):
            pause_ms(dice.choice(GAPS_MS))
            slow[at].end_consume()
            slow[at].close()
            pause_ms(dice.choice(GAPS_MS))
            slow[at] = self._open(kinds[at], SLOW)
            slow[at].begin_consume()
        self._produce([(b"key-%d" % at, b"again") for at in range(RECORDS // 2, RECORDS)])
        self._judge([*slow, third])

    def _open(self, kind: str, records_max: int, *, explicit: bool = False) -> ShareMember:
        member = self.hosts[kind].member(
            self.gateway.bootstrap,
            self.group,
            [self.topic],
            explicit=explicit,
            properties={"max.poll.records": str(records_max)},
        )
        self.members.append(member)
        return member

    def _joined(self, members: list[ShareMember]) -> None:
        def all_there() -> bool:
            for member in members:
                member.poll(0.05)
            return len(members_of(self.gateway, self.group)) == len(members)

        wait_until(all_there, what="three members", deadline_s=30)

    def _produce(self, records: list[Sent]) -> None:
        produce(self.gateway.bootstrap, self.topic, records)

    def _judge(self, alive: list[ShareMember]) -> None:
        wanted = {(self.topic, 0, offset) for offset in range(2 * RECORDS)}
        wait_until(
            lambda: wanted <= accepted_places(self.members),
            what=f"{len(wanted)} records accepted",
            deadline_s=ARRIVED_S_MAX,
        )
        for member in alive:
            member.end_consume()
            member.close()
        assert_never_backwards(deliveries_of(self.members))


def main() -> int:
    seeds = asked_seeds("python -m tests.chaos.rolling", __doc__, 50)
    folder = build_dir() / "chaos"
    folder.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=folder, prefix="rolling-"))
    try:
        site = Site(directory, QUICK.commit_interval_ms)
        programs = compile_programs()
        with site.running(), ShareHost.librdkafka() as one, ShareHost.java(programs) as two:
            hosts = {one.kind: one, two.kind: two}

            def play(seed: int) -> str:
                Rolling(site.gateway, site.kafka, hosts, seed).run()
                return "ok"

            return played(seeds, play, lambda seed: site.keep_logs(folder / f"rolling-seed-{seed}"))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
