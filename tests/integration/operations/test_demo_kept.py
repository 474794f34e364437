"""A demo that stays up is alive: members, flights that come in, a parked record; and it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from demo.flights import Flight
from demo.scene import MEMBERS, Scene, stay
from gateway.embedded.process import SetupError
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import members_of, rest

pytestmark = [pytest.mark.deep, pytest.mark.integration]

FLIGHTS = [Flight(("", at), "UA", b"N%d" % (at % 7), b'{"flight": %d}' % at) for at in range(50)]


@pytest.fixture
def scene(gateway: GatewayProcess, topic: Callable[..., str], tmp_path: Path) -> Scene:
    name = topic(partitions=2)
    front = gateway.bootstrap
    return Scene(name, f"{name}-board", FLIGHTS, front, front, "Keyway here", tmp_path)


def test_the_scene_lives_until_it_is_interrupted(
    gateway: GatewayProcess, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = 0

    def interrupt_when_all_is_there() -> None:
        nonlocal ticks
        ticks += 1
        assert ticks < 2_400, "five minutes"
        status, group = rest(gateway, f"/v1/groups/{scene.group}")
        if status != 200 or set(members_of(gateway, scene.group)) != set(MEMBERS):
            return
        parked = [record for row in group["partitions"] for record in row["parked"]]
        settled = sum(row["cursor"] or 0 for row in group["partitions"])
        if len(parked) == 1 and settled > 100:
            raise KeyboardInterrupt

    with ExitStack() as running:
        stay(Console(), running, scene, interrupt_when_all_is_there, seconds=7_200)
    said = capsys.readouterr().out
    assert "Keyway here" in said
    assert "else it ends in 2 h" in said


def test_the_scene_ends_by_itself(scene: Scene) -> None:
    with ExitStack() as running:
        stay(Console(), running, scene, lambda: None, seconds=0)


def test_a_scene_without_its_gateway_ends(scene: Scene) -> None:
    def gone() -> None:
        raise SetupError("the gateway ended")

    with ExitStack() as running, pytest.raises(SetupError, match="the gateway ended"):
        stay(Console(), running, scene, gone)
