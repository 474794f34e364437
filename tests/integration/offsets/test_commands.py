"""`keyway offsets` as an operator types it, beside services that run as processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.config import load
from gateway.admin.distribution import Distribution
from gateway.embedded.process import free_ports, start_child, stop_child, wait_until
from tests.integration.offsets.conftest import Addresses
from tests.rig.gateway_process import REPOSITORY
from tests.rig.offset_clusters import PlainLink, commit, committed, produce_at, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
BASE = 1_700_000_000_000


def keyway(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "offsets", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_from_run_to_apply(
    pair: Addresses,
    both: Callable[..., str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, group, late = both(), fresh_name("group"), fresh_name("late")
    link = PlainLink(("A", pair["A"]), pair["B"])
    produce_at(pair["A"], topic, [(BASE + at * 1_000, b"%d" % at) for at in range(20)])
    link.copy(topic)
    commit(pair["A"], group, topic, 12)
    config = write_config(tmp_path, pair, apply=False)
    port = free_ports(1)
    services = [
        start_child(
            [sys.executable, "-m", "offsets", "run", str(config), "--cluster", name, *more],
            log=tmp_path / f"{name}.log",
            env=dict(os.environ),
            cwd=REPOSITORY,
        )
        for name, more in (("A", ()), ("B", ("--metrics-port", str(port))))
    ]
    try:
        code, _, text = keyway("plan", str(config), late, "--to", "B")
        assert (code, late in text) == (3, True), "nothing is known of it"

        def row_of(status: str) -> Any:
            rows = [it for it in json.loads(status)["rows"] if it["group"] == group]
            return rows[0] if rows and "not-indexed-yet" not in rows[0]["refusals"] else None

        def shown() -> bool:
            return row_of(keyway("status", str(config), "-o", "json")[1]) is not None

        wait_until(shown, what="status", deadline_s=60, every_s=0.5)  # a process each time
        row = row_of(keyway("status", str(config), "-o", "json")[1])
        assert (row["cluster"], row["source"], row["source_offset"]) == ("B", "A", 12)
        assert (row["old"], row["new"], row["replay"]) == (None, 12, 0)
        assert group in keyway("status", str(config))[1]
        shown_over_rest = asyncio.run(Distribution(config, lambda: 0).status("/v1/offsets"))
        assert any(it["group"] == group for it in shown_over_rest.status["rows"])

        code, text, _ = keyway("plan", str(config), group, "--to", "B")
        assert code == 0
        assert "12" in text
        code, _, text = keyway("apply", str(config), group, "--to", "B")
        assert (code, "--execute" in text) == (0, True)
        assert committed(load(config), "B", group) == {}
        code, text, _ = keyway("apply", str(config), group, "--to", "B", "--execute", "-o", "json")
        assert code == 0
        assert json.loads(text)["rows"][0]["new"] == 12
        assert committed(load(config), "B", group)[topic, 0].offset == 12

        commit(pair["B"], group, topic, 15)
        code, text, _ = keyway("apply", str(config), group, "--to", "B", "--execute", "-o", "json")
        refusals = json.loads(text)["rows"][0]["refusals"]
        assert (code, refusals) == (1, ["overtaken", "target-ahead"])
        code, text, _ = keyway(
            *("apply", str(config), group, "--to", "B", "--execute", "--force", "--rewind")
        )
        assert code == 0
        assert committed(load(config), "B", group)[topic, 0].offset == 12
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert "keyway_offsets_distribution_delay_seconds" in metrics
        assert f'keyway_offsets_replay_expected_records{{group="{group}"}} 0.0' in metrics
    finally:
        codes = [stop_child(it, grace_s=60) for it in services]
        link.close()
    assert codes == [0, 0]


def test_a_config_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters: []\n")
    code, _, text = keyway("status", str(path))
    assert code == 2
    assert "clusters" in text
