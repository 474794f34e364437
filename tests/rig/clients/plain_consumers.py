"""Stock consumers of plain groups as processes, and the order in which they had their records."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import REPOSITORY
from tests.rig.patience import patient_s


@dataclass(frozen=True, slots=True)
class Consumed:
    came_ns: int
    done_ns: int
    partition: int
    key: str
    number: int


class PlainConsumer:
    def __init__(self, command: Sequence[str]) -> None:
        self.consumed: list[Consumed] = []
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    @classmethod
    def librdkafka(
        cls, bootstrap: str, topic: str, group: str, pause_ms: int, *config: str
    ) -> Self:
        words = (bootstrap, topic, group, str(pause_ms), *config)
        return cls([sys.executable, "-m", "tests.rig.clients.plain_consumer", *words])

    @classmethod
    def java(
        cls,
        programs: JavaPrograms,
        bootstrap: str,
        topic: str,
        group: str,
        pause_ms: int,
        *config: str,
    ) -> Self:
        words = (bootstrap, topic, group, str(pause_ms), *config)
        return cls(programs.command("PlainConsumer", *words))

    def end(self) -> None:
        """It leaves its group. Raises AssertionError if its client does not close."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(patient_s(60))
        except subprocess.TimeoutExpired as hanging:
            raise AssertionError(f"a consumer does not close: {hanging.cmd}") from hanging
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._reading.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if not line[:1].isdigit() or line.count(" ") != 4:
                    self.said.append(line)  # errors that Java's client logs
                    continue
                came_ns, done_ns, partition, key, number = line.split()
                self.consumed.append(
                    Consumed(int(came_ns), int(done_ns), int(partition), key, int(number))
                )


def consumed_by(members: Iterable[PlainConsumer]) -> list[Consumed]:
    return [each for member in members for each in member.consumed]


def assert_each_after_the_one_before(consumed: Iterable[Consumed], sent: Mapping[str, int]) -> None:
    """Of each key all numbers came, and each one only after the one before was done, whatever their
    partitions. A record that comes again counts the first time.
    """
    firsts: dict[str, dict[int, Consumed]] = {}
    for each in sorted(consumed, key=lambda each: each.came_ns):
        firsts.setdefault(each.key, {}).setdefault(each.number, each)
    for key, count in sent.items():
        numbers = firsts.get(key, {})
        missing = [number for number in range(count) if number not in numbers]
        assert not missing, f"{key} lost: {missing}"
        for number in range(1, count):
            before, later = numbers[number - 1], numbers[number]
            same_poll = before.came_ns == later.came_ns and before.partition == later.partition
            assert same_poll or before.done_ns <= later.came_ns, f"{key}: {before}, then {later}"
