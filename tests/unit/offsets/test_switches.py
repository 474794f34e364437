"""What a cluster tells of switches, by the status of its links. B's link of level 2 has gone to A,
and goes to C now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from keyway.clusters.config import ClustersConfig
from offsets.board import BoardTopic
from offsets.client import Partition
from offsets.core.switches import SwitchReport
from offsets.switches import Switches
from tests.rig.offsets_in_memory import MemoryClient

CONFIG = ClustersConfig.model_validate(
    {
        "clusters": [{"name": name, "bootstrap_servers": "127.0.0.1:1"} for name in "ABC"],
        "tree": {"level": 2, "children": ["B", {"level": 1, "children": ["A", "C"]}]},
    }
)
ORDER = {"target": "C", "generation": 1, "rewind": False}
TOLD = SwitchReport("B", 2, "B", 1, "C", rewind=False, done=True)


class Ends(MemoryClient):
    log_end = 40

    def ends(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        assert not partly, "a log whose end is not known is not through"
        return dict.fromkeys(partitions, self.log_end)


def switches_of(name: str, **status: dict[str, Any]) -> tuple[Switches, BoardTopic]:
    client = Ends(name, now_ms=1)
    board = BoardTopic(client)
    found = Switches(CONFIG, client, board)
    for key, value in status.items():
        tell(found, key, value)
    return found, board


def tell(switches: Switches, key: str, value: dict[str, Any]) -> None:
    switches._take(key.encode(), json.dumps(value).encode())


def copied(position: int) -> dict[str, Any]:
    return {"state": "running", "partitions": {"0": {"position": position}}}


def test_the_cluster_of_the_link_tells_of_the_switch() -> None:
    switches, board = switches_of("B", **{"switch/B-level-2": ORDER})
    switches.look()
    assert [switch.done for switch in board.state.switches.values()] == [False], (
        "it is only ordered"
    )
    tell(switches, "link/B-level-2", {"generation": 1, "target": "C"})
    switches.look()
    assert list(board.state.switches.values()) == [TOLD]
    board.state.news()
    switches.look()
    assert board.state.news() == []


def test_the_old_target_is_through_when_its_links_have_passed_all_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = {"link/A-level-1": {"generation": 0}, "topic/A-level-1/orders": copied(20)}
    switches, board = switches_of("A", **status)
    board.write_told([TOLD])
    switches.look()
    assert list(board.state.switches.values()) == [TOLD]
    monkeypatch.setattr(board.client, "log_end", 90)  # newer records do not count
    tell(switches, "topic/A-level-1/orders", copied(40))
    switches.look()
    assert board.state.switches[TOLD.place, "A"].generation == 1


def test_a_link_that_has_told_nothing_is_not_through() -> None:
    switches, board = switches_of("A")
    board.write_told([TOLD])
    switches.look()
    assert list(board.state.switches.values()) == [TOLD]
