"""A real Prometheus (Debian's) with the alert rules of docs/monitoring, on a quicker clock.

`python -m tests.rig.prometheus` (make setup) fetches it into build/ with apt-get, without
installing it and without root. Where that is not to be had, its tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from gateway.embedded.process import free_ports, kill_child, start_child
from tests.rig.alerts import MONITORING
from tests.rig.gateway_process import REPOSITORY
from tests.rig.patience import wait_until

HOME = REPOSITORY / "build" / "prometheus"
SERVER = HOME / "usr" / "bin" / "prometheus"
TOOL = HOME / "usr" / "bin" / "promtool"
FETCH_S_MAX = 300
STARTS_S_MAX = 60.0
# A minute of the rules is two seconds of a test. A range still holds several scrapes.
QUICKER = 30
SCRAPE_S = 1
_DURATION = re.compile(r"\[(\d+[smhd])\]")


def fetch() -> bool:
    """Returns whether it is there."""
    if SERVER.exists():
        return True
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return False
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    commands = (["apt-get", "-qq", "download", "prometheus"], ["dpkg", "-x", "PACKAGE", str(HOME)])
    for command in commands:
        words = [str(next(HOME.glob("*.deb"))) if word == "PACKAGE" else word for word in command]
        done = subprocess.run(
            words, cwd=HOME, capture_output=True, timeout=FETCH_S_MAX, check=False
        )
        if done.returncode != 0:
            return False
    for package in HOME.glob("*.deb"):
        package.unlink()
    return SERVER.exists()


def quicker(rules: dict[str, Any]) -> dict[str, Any]:
    """The rules with every duration divided by QUICKER; all else stays."""
    groups = [
        {
            **group,
            "rules": [
                {
                    **rule,
                    "expr": _DURATION.sub(lambda match: f"[{_shorter(match[1])}]", rule["expr"]),
                    **({"for": _shorter(rule["for"])} if "for" in rule else {}),
                }
                for rule in group["rules"]
            ],
        }
        for group in rules["groups"]
    ]
    return {"groups": groups}


def _shorter(duration: str) -> str:
    return f"{max(1, round(promql.parse_duration(duration).total_seconds() / QUICKER))}s"


class Prometheus:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """The labels of each alert that fires, by its name."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self._ask("/api/v1/alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    def value(self, expression: str) -> list[float]:
        query = urllib.parse.urlencode({"query": expression})
        return [
            float(series["value"][1]) for series in self._ask(f"/api/v1/query?{query}")["result"]
        ]

    def faults(self) -> list[str]:
        """What Prometheus says of rules that it could not evaluate."""
        groups = self._ask("/api/v1/rules")["groups"]
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in groups
            for rule in group["rules"]
            if rule.get("lastError")
        ]

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=120) as answer:
            return json.load(answer)["data"]


@contextmanager
def watching(directory: Path, target: str) -> Iterator[Prometheus]:
    """It scrapes `target` as the job keyway, and judges the quicker rules, inside the block."""
    directory.mkdir(parents=True)
    rules = yaml.safe_load((MONITORING / "keyway-alerts.yaml").read_text("utf-8"))
    (directory / "rules.yaml").write_text(yaml.safe_dump(quicker(rules)))
    every = f"{SCRAPE_S}s"
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every, "scrape_timeout": every},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "keyway", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_ports(1)
    child = start_child(
        [
            *(str(SERVER), "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        log=directory / "prometheus.log",
        cwd=directory,
    )
    server = Prometheus(port)

    def scrapes() -> bool:
        try:
            return server.value("up") == [1.0]
        except OSError:
            return False

    try:
        wait_until(scrapes, what="Prometheus scrapes", deadline_s=STARTS_S_MAX)
        yield server
    finally:
        kill_child(child)


if __name__ == "__main__":
    if not fetch():
        sys.stdout.write(
            "keyway: no Prometheus to be had by apt-get: the tests of alerts with a real one are"
            " skipped\n"
        )
