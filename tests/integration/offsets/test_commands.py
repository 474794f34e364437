"""`keyway offsets` as an operator types it, beside services that run as processes of their own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.embedded.process import free_ports, start_child, stop_child
from keyway.clusters.config import load
from tests.integration.offsets.conftest import Addresses
from tests.rig.gateway_process import REPOSITORY
from tests.rig.offset_clusters import PlainLink, commit, committed, produce_at, write_config
from tests.rig.patience import patient_s
from tests.rig.quick_start import ran

pytestmark = pytest.mark.integration
BASE = 1_700_000_000_000


def keyway(*words: str) -> tuple[int, str, str]:
    done = ran(["offsets", *words], timeout_s=patient_s(120))
    return done.returncode, done.stdout, done.stderr


def watched(*words: str) -> Iterator[str]:
    """The looks of the command as JSON, with --watch; Ctrl-C when no more are wanted."""
    again = ("-o", "json", "--watch", "0.2")
    command = [sys.executable, "-m", "gateway.cli", "offsets", *words, *again]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, preexec_fn=interruptible
    )
    late = threading.Timer(patient_s(120), process.kill)
    late.start()
    try:
        assert process.stdout is not None
        yield from process.stdout
    finally:
        running = process.poll() is None
        process.send_signal(signal.SIGINT)
        code = process.wait(300)
        late.cancel()
        assert (running, code) == (True, 0)


def interruptible() -> None:
    """Also where the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.deep
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
            rows = [shown for shown in yaml.safe_load(status)["rows"] if shown["group"] == group]
            return rows[0] if rows and "not-indexed-yet" not in rows[0]["refusals"] else None

        for line in watched("status", str(config)):
            row = row_of(line)
            if row is not None:
                break
        assert (row["cluster"], row["source"], row["source_offset"]) == ("B", "A", 12)
        assert (row["old"], row["new"], row["replay"]) == (None, 12, 0)
        assert group in keyway("status", str(config))[1]
        assert row_of(keyway("status", str(config), "-o", "yaml")[1])["new"] == 12
        plan = ("plan", str(config), group, "--to", "B")
        code, text, _ = keyway(*plan)
        assert code == 0
        assert "12" in text
        assert row_of(keyway(*plan, "-o", "yaml")[1])["mode"] == "exact"
        news = [json.loads(doc)["rows"][0]["new"] for doc in itertools.islice(watched(*plan), 2)]
        assert news == [12, 12]
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
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            metrics = answer.read().decode()
        assert "keyway_offsets_distribution_delay_seconds" in metrics
        assert f'keyway_offsets_replay_expected_records{{group="{group}"}} 0.0' in metrics
    finally:
        codes = [stop_child(service, grace_s=60) for service in services]
        link.close()
    assert codes == [0, 0]


def test_a_config_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters: []\n")
    code, _, text = keyway("status", str(path))
    assert code == 2
    assert "clusters" in text
