"""The demo's consumers are followed by their logs, whoever was the first to be there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from demo.audit import Delivery, log_line
from demo.consumers import CONSUMERS, RunningConsumer, follow
from gateway.embedded.process import kill_child, start_child
from tests.rig.patience import wait_until

RECORDS = 300


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[list[RunningConsumer]]:
    """Children that wait; the test writes the records they have processed."""
    idle = ["sleep", "30"]
    running = [
        RunningConsumer(f"consumer-{at}", tmp_path / f"{at}.log", tmp_path / f"{at}.err", child)
        for at in range(CONSUMERS)
        for child in [start_child(idle, log=tmp_path / f"{at}.err")]
    ]
    yield running
    for consumer in running:
        kill_child(consumer.child)


def processes(consumer: RunningConsumer, offsets: range) -> None:
    lines = [log_line(Delivery("", at, 0, at, 1, 0)) for at in offsets]
    with consumer.log.open("a", encoding="ascii") as log:
        log.writelines(lines)


@pytest.mark.parametrize("first", range(CONSUMERS))
def test_the_one_at_work_is_killed_and_another_goes_on(
    consumers: list[RunningConsumer], first: int
) -> None:
    """On little data one may have it all before the others have joined."""
    worker, other = consumers[first], consumers[first - 1]
    processes(worker, range(RECORDS // 2))
    advanced: list[int] = []

    def check() -> None:
        if worker.child.poll() is not None and not other.log.exists():
            processes(other, range(RECORDS // 2, RECORDS))

    assert follow(consumers, RECORDS, advanced.append, check, lambda: None) == worker.name
    assert sum(advanced) == RECORDS
    assert worker.child.returncode == -9


def test_one_is_killed_however_fast_the_others_are(consumers: list[RunningConsumer]) -> None:
    """The rest of the records comes once one is frozen, and may be done before it is killed."""
    processes(consumers[0], range(RECORDS // 2))

    def load_rest() -> None:
        frozen = psutil.Process(consumers[0].child.pid)
        wait_until(
            lambda: frozen.status() == psutil.STATUS_STOPPED, what="it is frozen", deadline_s=30
        )
        processes(consumers[1], range(RECORDS // 2, RECORDS))

    assert follow(consumers, RECORDS, lambda _: None, lambda: None, load_rest) == "consumer-0"
    assert consumers[0].child.returncode == -9
