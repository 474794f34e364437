"""Two services of one cluster: one works, the other one stands by and says who works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.embedded.process import kill_child, start_child, stop_child
from keyway.clusters.config import load
from tests.integration.offsets.conftest import Addresses
from tests.rig.gateway_process import REPOSITORY
from tests.rig.offset_clusters import Services, commit, committed, write_config
from tests.rig.patience import patient_s, wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]


def test_a_second_service_stands_by_until_the_first_one_is_gone(
    pair: Addresses,
    copied: Callable[[int], str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Side by side, the slower one set a group back from 12 to 8 on B, where it then stayed."""
    topic, group = copied(20), fresh_name("group")
    path = write_config(tmp_path, pair)
    config = load(path)

    def started(name: str) -> tuple[Path, subprocess.Popen[bytes]]:
        log = tmp_path / f"{name}.log"
        command = [sys.executable, "-m", "offsets", "run", str(path), "--cluster", "B"]
        return log, start_child(command, log=log, cwd=REPOSITORY)

    def moved_to(offset: int) -> Callable[[], bool]:
        def moved() -> bool:
            on_a.rounds(1)
            found = committed(config, "B", group).get((topic, 0))
            return found is not None and found.offset == offset

        return moved

    first_log, first = started("first")
    second_log, second = started("second")
    children = {first_log: first, second_log: second}
    try:
        wait_until(
            lambda: (
                any("offsets_follow" in log.read_text() for log in children)
                and any("offsets_stand_by" in log.read_text() for log in children)
            ),
            what="one that works and one that waits",
            deadline_s=120,
        )
        (working,) = [log for log in children if "offsets_follow" in log.read_text()]
        (waiting,) = children.keys() - {working}
        assert f"-{children[working].pid} at " in waiting.read_text(), "which one it waits for"
        with closing(Services(config, ["A"])) as on_a:
            commit(pair["A"], group, topic, 5)
            wait_until(moved_to(5), what="the first move", deadline_s=120)
            assert "offsets_follow" not in waiting.read_text()
            kill_child(children.pop(working))
            commit(pair["A"], group, topic, 12)
            wait_until(moved_to(12), what="a move by the other one", deadline_s=120)
        assert "offsets_follow" in waiting.read_text()
        assert stop_child(children.pop(waiting), grace_s=patient_s(10)) == 0
    finally:
        for child in children.values():
            kill_child(child)
