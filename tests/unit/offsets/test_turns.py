"""A service works while its process has the lease, and gives way when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.kafka.identities import Identities
from offsets import turns
from offsets.errors import LeaseNotSure
from offsets.limits import LEASE_SESSION_MS
from offsets.state_topic import StateTopic
from offsets.turns import Turns
from tests.rig.patience import wait_until

CONFIG = {
    "clusters": [
        {"name": "ams", "bootstrap_servers": "127.0.0.1:1"},
        {"name": "fra", "bootstrap_servers": "127.0.0.1:2"},
    ],
    "tree": {"level": 1, "children": ["ams", "fra"]},
}


class Lease:
    """`held` and `other` are what the test says."""

    held = threading.Event()
    other: str | None = None
    released = 0
    problem = ""

    def __init__(self, *_: object, **_named: object) -> None: ...

    def poll(self, _wait_s: float) -> bool:
        return self.held.is_set()

    def holder(self) -> str | None:
        return self.other

    def release(self) -> None:
        type(self).released += 1


class Service:
    """Works until it is stopped."""

    begun: list[Service]
    fault: BaseException | None = None

    def __init__(self, *_: object, require_lease: Callable[[], None], **_named: object) -> None:
        self.require_lease = require_lease
        self.closed = False

    def run(self, stop: threading.Event) -> None:
        self.begun.append(self)
        if self.fault is not None:
            raise self.fault
        stop.wait()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], threading.Thread]]:
    """Starts one that ends with the test."""
    monkeypatch.setattr(Lease, "held", threading.Event())
    monkeypatch.setattr(Lease, "released", 0)
    monkeypatch.setattr(Service, "begun", [], raising=False)
    monkeypatch.setattr(turns, "Lease", Lease)
    monkeypatch.setattr(turns, "Service", Service)
    monkeypatch.setattr(turns, "STANDBY_LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr(StateTopic, "ensure", lambda _: None)
    monkeypatch.setattr(Identities, "look", lambda *_: {})
    stop, threads = threading.Event(), list[threading.Thread]()

    def start() -> threading.Thread:
        made = Turns(config(groups={"include": ["*"]}), "ams")
        threads.append(threading.Thread(target=made.run, args=(stop,)))
        threads[0].start()
        return threads[0]

    yield start
    stop.set()
    for thread in threads:
        thread.join(60)
    assert all(service.closed for service in Service.begun)
    assert Lease.released == len(threads)


def config(**sections: Any) -> ClustersConfig:
    return ClustersConfig.model_validate(CONFIG | sections)


def test_a_service_works_anew_with_each_lease(process: Callable[[], threading.Thread]) -> None:
    process()
    assert Service.begun == [], "it stands by"
    Lease.held.set()
    wait_until(lambda: len(Service.begun) == 1, what="a service", deadline_s=60)
    Lease.held.clear()
    wait_until(lambda: Service.begun[0].closed, what="its end", deadline_s=60)
    Lease.held.set()
    wait_until(lambda: len(Service.begun) == 2, what="another service", deadline_s=60)


def test_a_process_that_was_too_slow_does_not_write(
    process: Callable[[], threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(turns, "monotonic", lambda: now_s)
    Lease.held.set()
    process()
    wait_until(lambda: len(Service.begun) == 1, what="a service", deadline_s=60)
    Service.begun[0].require_lease()
    Lease.held.clear()
    now_s += LEASE_SESSION_MS / 1_000
    with pytest.raises(LeaseNotSure, match="may be lost"):
        Service.begun[0].require_lease()


@pytest.mark.parametrize(
    ("other", "problem", "said"),
    [
        ("keyway-7 at /10.0.0.1", "", ("offsets_stand_by", "keyway-7 at /10.0.0.1")),
        (None, "no READ", ("offsets_wait", "is not given: no READ")),
        (None, "", ("offsets_wait", "nothing is heard of the group's coordinator")),
    ],
)
def test_a_process_that_gets_no_lease_says_why_once(
    process: Callable[[], threading.Thread],
    monkeypatch: pytest.MonkeyPatch,
    other: str | None,
    problem: str,
    said: tuple[str, str],
) -> None:
    monkeypatch.setattr(Lease, "other", other)
    monkeypatch.setattr(Lease, "problem", problem)
    polls: list[float] = []
    monkeypatch.setattr(Lease, "poll", lambda _, wait_s: polls.append(wait_s))
    with capture_logs() as logs:
        process()
        wait_until(lambda: len(polls) > 5, what="some looks", deadline_s=60)
    assert [line["event"] for line in logs] == [said[0]]
    assert said[1] in logs[0].get("held_by", "") + logs[0].get("reason", "")


def test_groups_are_named_before_another_process_is_waited_for() -> None:
    with pytest.raises(ConfigError, match="groups: is missing"):
        Turns(config(), "ams")
