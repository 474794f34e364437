"""The registry view's process: its troubles are shown, and it is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gateway.config.file import ConfigError
from gateway.config.state import RegistryViewSection
from gateway.node import registry_view
from gateway.node.registry_view import View
from keyway.tls.certificates import AllCertificates
from tests.rig.certificates import Authority
from tests.rig.patience import patient_s

# `--beats FD` comes last, as the real one takes it.
STUB = """
import json, os, signal, sys, time
beats, folder = int(sys.argv[-1]), sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(f"{folder}/{os.getpid()}", "w").close()
def beat(**it):
    os.write(beats, json.dumps(it).encode() + b"\\n")
if os.path.exists(f"{folder}/refuse"):
    beat(failure="cannot listen on 127.0.0.1:1")
    sys.exit(2)
while True:
    away = os.path.exists(f"{folder}/away")
    old = {"age_s": 61.4, "problem": "no broker"} if away else {"age_s": 0.2, "problem": ""}
    beat(read=not os.path.exists(f"{folder}/empty"), versions=7, memory_bytes=1_000, **old)
    time.sleep(0.05)
"""


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(patient_s(60)):
        while not done():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)


def sample(view: View, name: str) -> float:
    return next(
        measured.value
        for family in view.collect()
        for measured in family.samples
        if measured.name == name
    )


def run(folder: Path, scenario: Callable[[View], object]) -> None:
    async def main() -> None:
        view = View((sys.executable, "-c", STUB, str(folder)))
        running = asyncio.ensure_future(view.run())
        try:
            made = scenario(view)
            assert asyncio.iscoroutine(made)
            await made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_a_view_that_dies_or_is_silent_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_view, "VIEW_RETRY_S_MIN", 0.01)
    monkeypatch.setattr(registry_view, "VIEW_SILENT_S_MAX", 0.5)
    monkeypatch.setattr(registry_view, "VIEW_STOP_S_MAX", 0.1)

    def pids() -> set[int]:
        return {int(file.name) for file in tmp_path.iterdir()}

    def up() -> bool:
        return sample(view_of[0], "keyway_registry_view_up") == 1

    view_of: list[View] = []

    async def scenario(view: View) -> None:
        view_of.append(view)
        for at, ending in enumerate((signal.SIGKILL, signal.SIGSTOP, None), start=1):
            await until(lambda at=at: len(pids()) == at and up())  # type: ignore[misc]
            assert await view.troubles() == []
            assert sample(view, "keyway_registry_view_versions") == 7
            if ending is not None:
                known = pids()
                os.kill(newest(known), ending)
                await until(lambda known=known: pids() > known)  # type: ignore[misc]
        assert sample(view, "keyway_registry_view_starts_total") >= 3

    def newest(pids: set[int]) -> int:
        return max(pids, key=lambda pid: (tmp_path / str(pid)).stat().st_mtime_ns)

    run(tmp_path, scenario)
    assert not [pid for pid in pids() if Path(f"/proc/{pid}").exists()]


def test_its_own_reason_is_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_view, "VIEW_RETRY_S_MIN", 0.01)
    (tmp_path / "refuse").touch()

    async def scenario(view: View) -> None:
        texts: list[str] = []

        async def look() -> bool:
            texts[:] = [trouble.text for trouble in await view.troubles()]
            return any("cannot listen on 127.0.0.1:1" in text for text in texts)

        async with asyncio.timeout(patient_s(60)):
            while not await look():  # noqa: ASYNC110 - another process does it
                await asyncio.sleep(0.01)
        (tmp_path / "refuse").unlink()
        await until(lambda: sample(view, "keyway_registry_view_up") == 1)

    run(tmp_path, scenario)


def test_old_contents_are_a_trouble_and_a_figure(tmp_path: Path) -> None:
    text = "the registry view shows the schemas of 61 s ago: no broker"
    empty = "the registry view has read no schemas yet: no broker"

    async def scenario(view: View) -> None:
        async def told(*expected: str) -> None:
            async with asyncio.timeout(patient_s(60)):
                while [one.text for one in await view.troubles()] != [*expected]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        await told()
        assert sample(view, "keyway_registry_view_age_seconds") == 0.2
        (tmp_path / "away").touch()
        await told(text)
        assert sample(view, "keyway_registry_view_age_seconds") == 61.4
        assert sample(view, "keyway_registry_view_up") == 0
        (tmp_path / "empty").touch()
        await told(empty)
        for name in ("away", "empty"):
            (tmp_path / name).unlink()
        await told()

    run(tmp_path, scenario)


def section(folder: Path, **view: object) -> RegistryViewSection:
    file = folder / "clusters.yaml"
    view = {"registry_view": view}
    clusters = [{"name": name, "bootstrap_servers": "127.0.0.1:1", **view} for name in "ab"]
    tree = {"level": 1, "children": ["a", "b"]}
    file.write_text(yaml.safe_dump({"clusters": clusters, "tree": tree}))
    return RegistryViewSection(clusters_file=file, cluster="a")


def test_its_certificate_is_one_of_the_node(tmp_path: Path) -> None:
    own = Authority(tmp_path / "authority").issue("view", days=3)
    all_ = AllCertificates()
    files = {"cert_file": str(own.cert_file), "key_file": str(own.key_file)}
    assert len(registry_view.build(section(tmp_path, **files), all_)) == 1
    assert [one.port for one in all_.ports] == ["registry_view"]
    (warning,) = all_.warnings()
    assert warning.startswith("listener registry_view: certificate of cert_file expires on")
    plain = AllCertificates()
    assert len(registry_view.build(section(tmp_path, port=1), plain)) == 1
    assert plain.ports == []
    own.cert_file.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"registry_view: cert_file .*: no PEM certificate"):
        registry_view.build(section(tmp_path, **files), AllCertificates())
