"""A link runs while its process has the lease, and gives way when it is lost."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from spark.links import turns
from spark.links.turns import LinkTurns
from tests.rig.link_in_memory import CONFIG, DISTRIBUTOR
from tests.rig.patience import wait_until


class Lease:
    """`held` is what the test says."""

    held = threading.Event()
    released = 0
    group, problem = "lease", ""
    others: tuple[str, ...] = ("one", "another")

    def __init__(self, *_: object, **_named: object) -> None:
        pass

    def poll(self, _wait_s: float) -> bool:
        return self.held.is_set()

    def members(self) -> list[str]:
        return list(self.others)

    def release(self) -> None:
        type(self).released += 1


class Report:
    silent = False

    def silence(self) -> None:
        self.silent = True


class Run:
    """A link that runs until it is stopped."""

    begun: list[Run] = []  # noqa: RUF012 - the test's

    def __init__(self, *parts: Any) -> None:
        self.stop: threading.Event = parts[3]
        self.report = Report()
        self.ended = False

    def run(self) -> None:
        self.begun.append(self)
        self.stop.wait()
        self.ended = True


def test_a_link_runs_anew_with_each_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "Lease", Lease)
    monkeypatch.setattr(turns, "LinkRun", Run)
    monkeypatch.setattr(LinkTurns, "_status_topic", lambda _: None)
    stop = threading.Event()
    link = LinkTurns(cast(SparkSession, None), CONFIG, DISTRIBUTOR, stop, None)
    thread = threading.Thread(target=link.run)
    thread.start()
    try:
        assert Run.begun == [], "it stands by"
        Lease.held.set()
        wait_until(lambda: len(Run.begun) == 1, what="run", deadline_s=60)
        Lease.held.clear()
        wait_until(lambda: Run.begun[0].ended, what="end of the run", deadline_s=60)
        assert Lease.released == 0
        Lease.held.set()
        wait_until(lambda: len(Run.begun) == 2, what="another run", deadline_s=60)
        assert cast(object, link.report) is Run.begun[1].report
    finally:
        stop.set()
        thread.join(60)
    assert Run.begun[1].ended
    assert [run.report.silent for run in Run.begun] == [True, False], "the next one has newer rows"
    assert Lease.released == 1


@pytest.mark.parametrize("problem", ["Group authorization failed.", ""])
def test_a_link_that_gets_no_lease_says_why(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    """Without a right on the group it waited for good, without a word."""
    monkeypatch.setattr(Lease, "others", ())
    monkeypatch.setattr(Lease, "problem", problem)
    monkeypatch.setattr(Lease, "held", threading.Event())
    monkeypatch.setattr(turns, "Lease", Lease)
    monkeypatch.setattr(turns, "STANDBY_LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr(LinkTurns, "_status_topic", lambda _: None)
    stop = threading.Event()
    link = LinkTurns(cast(SparkSession, None), CONFIG, DISTRIBUTOR, stop, None)
    with capture_logs() as logs:
        thread = threading.Thread(target=link.run)
        thread.start()
        try:
            wait_until(lambda: bool(logs), what="a word", deadline_s=60)
        finally:
            stop.set()
            thread.join(60)
    why = problem or "nothing is heard of the group's coordinator"
    assert [(line["event"], line["fault"]) for line in logs] == [
        ("link_waits", f"the lease (group lease) is not given: {why}")
    ]
