"""Stock share consumers as a test drives them: a host process per client library, members inside
it.
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Self

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.share_lines import (
    Acked,
    Delivery,
    TopicPartitionOffset,
    parse_acked,
    parse_delivery,
)
from tests.rig.patience import patient_s

REPOSITORY = Path(__file__).parents[3]
ANSWER_SECONDS_MAX = 300.0
_numbers = itertools.count(1)


class MemberFailed(AssertionError):
    """The client library refused or failed a command; the text is its own error."""


class ShareHost:
    """A process with share consumers of one client library. `kind`: "librdkafka", "java" or
    "franz-go".
    """

    def __init__(self, kind: str, command: Sequence[str]) -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self._members: dict[str, ShareMember] = {}
        self._sending = threading.Lock()  # members may be driven by threads of their own
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def librdkafka(cls) -> Self:
        return cls("librdkafka", [sys.executable, "-m", "tests.rig.clients.librdkafka_share_host"])

    @classmethod
    def java(cls, programs: JavaPrograms) -> Self:
        return cls("java", programs.command("ShareHost"))

    @classmethod
    def franz_go(cls, program: Path) -> Self:
        """It knows open, consume, stop and close (go_programs.py builds it)."""
        return cls("franz-go", [str(program)])

    def member(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        name: str = "member",
        explicit: bool = False,
        properties: dict[str, str] | None = None,
    ) -> ShareMember:
        """Opens a share consumer; `name` and a number become its client.id."""
        member = ShareMember(self, f"{name}-{next(_numbers)}", explicit=explicit)
        self._members[member.name] = member
        config = {
            "bootstrap.servers": bootstrap,
            "client.id": member.name,
            "share.acknowledgement.mode": "explicit" if explicit else "implicit",
            **(properties or {}),
        }
        fields = [f"{key}={value}" for key, value in config.items()]
        member.command("open", group, ",".join(topics), *fields)
        return member

    def send(self, line: str) -> None:
        pipe = _pipe(self.process.stdin)
        with self._sending:
            pipe.write(line + "\n")
            pipe.flush()

    def kill(self) -> None:
        """SIGKILL, as a crashed consumer: no acknowledgement, no leave."""
        self.process.kill()
        self.process.wait(60)
        self._reader.join(10)

    def stop(self) -> None:
        """Ends the process without closing its members one by one."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        for line in _pipe(self.process.stdout):
            if not line.endswith("\n"):
                break  # cut off by a kill: does not count
            fields = line.rstrip("\n").split("\t")
            member = self._members.get(fields[0])
            if member is not None:
                member.report(fields)
        for member in self._members.values():
            member.report([member.name, "failed", "the host process ended"])


class ShareMember:
    """One share consumer. Everything it ever reported is in `deliveries`, `acked` and `notes`."""

    def __init__(self, host: ShareHost, name: str, *, explicit: bool) -> None:
        self.host = host
        self.name = name
        self.explicit = explicit
        self.deliveries: list[Delivery] = []
        self.acked: list[Acked] = []
        self.notes: list[str] = []
        self.committed: list[tuple[str, int, str]] = []
        self._ends: queue.Queue[str | None] = queue.Queue()

    def report(self, fields: list[str]) -> None:
        match fields[1]:
            case "record":
                self.deliveries.append(parse_delivery(fields))
            case "acked":
                self.acked.append(parse_acked(fields))
            case "committed":
                self.committed.append((fields[3], int(fields[4]), fields[5]))
            case "note":
                self.notes.append(fields[3])
            case "done":
                self._ends.put(None)
            case "failed":
                self._ends.put(fields[2])
            case unknown:
                self._ends.put(f"a report nobody knows: {unknown}")

    def command(self, *fields: object, seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        """Sends one command and waits for its end. Raises MemberFailed."""
        self.begin(*fields)
        self.finish(seconds_max)

    def begin(self, *fields: object) -> None:
        self.host.send("\t".join([self.name, *(str(field) for field in fields)]))

    def finish(self, seconds_max: float = ANSWER_SECONDS_MAX) -> None:
        try:
            failure = self._ends.get(timeout=seconds_max)
        except queue.Empty:
            raise MemberFailed(f"{self.name}: no answer within {seconds_max} s") from None
        if failure is not None:
            raise MemberFailed(f"{self.name}: {failure}")

    def poll(self, timeout_s: float = 0.5) -> list[Delivery]:
        """One poll() of the client."""
        seen = len(self.deliveries)
        self.command("poll", int(timeout_s * 1000))
        return self.deliveries[seen:]

    def poll_some(self, within_s: float = 20.0) -> list[Delivery]:
        """Polls until one poll() returns records; empty if the deadline passes."""
        deadline = time.monotonic() + patient_s(within_s)
        while time.monotonic() < deadline:
            records = self.poll()
            if records:
                return records
        return []

    def poll_count(self, count: int, within_s: float = 20.0) -> list[Delivery]:
        """Polls until `count` records have come in all, and returns them. The failure lists them.

        In explicit mode the clients refuse to poll while one of their records is unacknowledged:
        there all must come with one poll. They do where they stand in one batch of their producer
        (as `produce` of tests.rig.kafka sends them), for a window reads batches whole.
        """
        deadline = time.monotonic() + patient_s(within_s)
        records: list[Delivery] = []
        while len(records) < count and time.monotonic() < deadline:
            records += self.poll()
            if records and self.explicit:
                break
        came = [(record.offset, record.key, record.value) for record in records]
        assert len(came) == count, f"{len(came)} of {count} within {within_s} s: {came}"
        return records

    def poll_empty(self, for_s: float) -> list[Delivery]:
        """Polls for a while during which no record should come; returns those that did."""
        deadline = time.monotonic() + for_s
        seen = len(self.deliveries)
        while time.monotonic() < deadline and len(self.deliveries) == seen:
            self.poll(min(0.5, for_s))
        return self.deliveries[seen:]

    def acknowledge(self, verdict: str, deliveries: Iterable[Delivery]) -> None:
        """acknowledge() of each; sent with the next poll or commit."""
        by_partition: dict[tuple[str, int], list[int]] = {}
        for delivery in deliveries:
            by_partition.setdefault((delivery.topic, delivery.partition), []).append(
                delivery.offset
            )
        for (topic, partition), offsets in by_partition.items():
            self.command("ack", verdict, topic, partition, ",".join(map(str, offsets)))

    def commit(self, timeout_s: float = 15.0) -> list[str]:
        """commitSync(): the error of each partition, "OK" where taken."""
        seen = len(self.committed)
        self.command("commit", int(timeout_s * 1000))
        return [error for _, _, error in self.committed[seen:]]

    def settle(self, verdict: str, deliveries: Iterable[Delivery]) -> None:
        """Acknowledges and commits; every answer must be OK."""
        self.acknowledge(verdict, deliveries)
        errors = self.commit()
        assert set(errors) <= {"OK"}, errors

    def begin_consume(self, total_s: float = 120.0) -> None:
        """Starts polling and accepting in the background, until `end_consume`."""
        self.begin("consume", int(patient_s(total_s) * 1000))

    def end_consume(self) -> None:
        self.begin("stop")
        self.finish()

    def close(self) -> None:
        self.command("close")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "the process was started with pipes"
    return pipe


def accepted_places(members: Iterable[ShareMember]) -> set[TopicPartitionOffset]:
    """Places that the cluster confirmed as acknowledged to any member (by their callbacks)."""
    return {
        acked.place for member in members for acked in list(member.acked) if acked.error is None
    }


def consume_all(
    members: Sequence[ShareMember],
    wanted: set[TopicPartitionOffset],
    *,
    within_s: float = 60.0,
) -> None:
    """All members consume at once until every wanted record has been acknowledged, or fails at the
    deadline.
    """
    for member in members:
        member.begin_consume(within_s + ANSWER_SECONDS_MAX)
    deadline = time.monotonic() + patient_s(within_s)
    while not wanted <= accepted_places(members) and time.monotonic() < deadline:
        time.sleep(0.02)
    for member in members:
        member.end_consume()
    missing = sorted(wanted - accepted_places(members))
    assert not missing, f"{len(missing)} of {len(wanted)} never accepted, first {missing[:5]}"


def deliveries_of(members: Iterable[ShareMember]) -> list[Delivery]:
    """Everything the members' applications saw, in order of time."""
    records = [record for member in members for record in list(member.deliveries)]
    return sorted(records, key=lambda record: record.at_ns)
