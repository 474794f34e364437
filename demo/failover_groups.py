"""The two groups of the fail-over demo: a stock consumer group and a Key-Shared group. Each has one
member, which reports every record it processes.

A member is a process of its own (failover_member.py), so that it can die with its cluster. A member
that went on trying would commit an old position once the cluster is back, later than the commits of
the group elsewhere.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from demo.failover_member import Allowed, Member, Record, run
from gateway.embedded.process import SetupError

STOP_S_MAX = 60.0
_SPAWN = multiprocessing.get_context("spawn")  # librdkafka's threads outlive no fork


@dataclass(frozen=True, slots=True)
class Processed:
    """One record as delivered to a member. `visit`: the name of the group's stay on one cluster."""

    visit: str
    partition: int
    offset: int
    key: bytes
    number: int


@dataclass(slots=True)
class Group:
    """`start` on a cluster, `stop`, `start` on another; `processed` goes on growing. A member asks
    for no more records once it has processed `allowed` of them.
    """

    name: str
    shared: bool
    processed: list[Processed] = field(default_factory=list)
    _allowed: Allowed = field(default_factory=lambda: Allowed(_SPAWN))
    _process: BaseProcess | None = None
    _ours: Connection | None = None
    _listener: threading.Thread | None = None
    _failure: str = ""

    def allow(self, records: int) -> None:
        """`records`: in all, wherever they are processed."""
        self._allowed.set(records)

    def start(self, visit: str, bootstrap: str, topic: str) -> None:
        self._ours, theirs = _SPAWN.Pipe()
        member = Member(self.name, self.shared, bootstrap, topic, len(self.processed))
        self._process = _SPAWN.Process(
            target=run, args=(member, self._allowed, theirs), name=self.name, daemon=True
        )
        self._process.start()
        theirs.close()  # the member's alone: its end is heard
        self._listener = threading.Thread(
            target=self._listen, args=(visit, self._ours), daemon=True, name=self.name
        )
        self._listener.start()

    def stop(self) -> None:
        """The member commits and leaves. Raises SetupError, also with what its client has said."""
        if self._process is None or self._ours is None:
            return
        with suppress(OSError):  # it has ended already
            self._ours.send("stop")
        self._process.join(STOP_S_MAX)
        if self._process.exitcode is None:
            self.kill()
            raise SetupError(f"{self.name}: its member has not ended in {STOP_S_MAX:.0f} s")
        self._ended()
        self._raise_failure()

    def kill(self) -> None:
        """The member dies, and commits nothing more."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._ended()

    def _ended(self) -> None:
        if self._listener is not None:
            self._listener.join()  # all that it told before is noted
        self._process = self._ours = self._listener = None

    def _listen(self, visit: str, told: Connection) -> None:
        """Listens until the member ends."""
        while True:
            try:
                news: list[Record] | str = told.recv()
            except (EOFError, OSError):
                return
            if isinstance(news, str):
                self._failure = news
            else:
                self.processed += [Processed(visit, *record) for record in news]

    def wait_for(self, count: int, within_s: float) -> None:
        """Raises TimeoutError."""
        self._wait(lambda: len(self.processed) >= count, f"{count} flights", within_s)

    def wait_for_all(self, numbers: Iterable[int], within_s: float) -> None:
        """Raises TimeoutError."""
        wanted = set(numbers)

        def there() -> bool:
            return wanted <= {record.number for record in list(self.processed)}

        self._wait(there, f"all {len(wanted)} flights", within_s)

    def _wait(self, done: Callable[[], bool], what: str, within_s: float) -> None:
        end = time.monotonic() + within_s
        while not done():
            self._raise_failure()
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: {what}: not within {within_s:.0f} s")
            time.sleep(0.05)

    def _raise_failure(self) -> None:
        if self._failure:
            raise SetupError(f"{self.name}: {self._failure}")

    @property
    def repeated(self) -> int:
        return len(self.processed) - len({record.number for record in self.processed})

    @property
    def out_of_order(self) -> int:
        """Keys with a flight that came for the first time after a later one, on whatever cluster;
        and keys that went back by more than a move to another cluster explains.
        """
        latest: dict[bytes, int] = {}
        in_visit: dict[tuple[str, bytes], int] = {}
        seen: set[int] = set()
        wrong: set[bytes] = set()
        for record in self.processed:
            overtaken = record.number not in seen and record.number < latest.get(record.key, -1)
            if overtaken or record.number < in_visit.get((record.visit, record.key), -1):
                wrong.add(record.key)
            seen.add(record.number)
            latest[record.key] = max(record.number, latest.get(record.key, -1))
            in_visit[record.visit, record.key] = record.number
        return len(wrong)
