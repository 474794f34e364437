"""`make campaign NAME=conformance`: public suites, unmodified, on fresh Kafkas, direct and through
the gateway.

A suite of others is given by its option: a checkout, or the program built from one. Without them
Kafka's own programs run, and Spark. Tests that differ run again, alone, once each way. Results go
into tests/conformance/results.json, cell by cell, and docs/conformance.md is written anew from it.
Exits with 1 if a difference is explained nowhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich import print as show

from gateway.embedded.jars import KAFKA_VERSION
from tests.conformance.suites.compared import Compared, Verdicts, compared, joined
from tests.conformance.suites.explained import EXPLAINED
from tests.conformance.suites.front import NEWEST, WAYS, Setting, Way, fresh
from tests.conformance.suites.listed import OF_OTHERS, suites
from tests.conformance.suites.published import publish
from tests.conformance.suites.suite import Suite
from tests.rig.gateway_process import REPOSITORY

WORK = REPOSITORY / "build" / "conformance"


def run(suite: Suite, setting: Setting, directory: Path) -> Compared:
    found = {way: _run(suite, setting, way, directory / way, ()) for way in WAYS}
    first = compared(suite.name, found["direct"], found["through"], EXPLAINED)
    again = [difference.test for difference in first.unexplained]
    if not again:
        return first
    show(f"  {len(again)} differ and run again: {', '.join(again[:5])}")
    second = {way: _run(suite, setting, way, directory / f"{way}-again", again) for way in WAYS}
    both = {way: joined(found[way], [second[way]]) for way in WAYS}
    return compared(suite.name, both["direct"], both["through"], EXPLAINED)


def _run(
    suite: Suite, setting: Setting, way: Way, directory: Path, only: Sequence[str]
) -> Verdicts:
    began = time.monotonic()
    assert suite.runs is not None, "no path to it was given"
    with fresh(setting, way, directory, suite.kafka, suite.groups) as front:
        verdicts = suite.runs(front, only)
    failed = {test: outcome for test, outcome in verdicts.items() if outcome.startswith("failed")}
    show(f"  {way}: {len(verdicts)} in {time.monotonic() - began:.0f} s, {len(failed)} failed")
    for test, verdict in failed.items():
        show(f"    {test}: {verdict}".replace("[", r"\["))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    for name in OF_OTHERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PATH", help="its checkout or program")
    parser.add_argument("--suites", default="", help="parts of their names, with commas")
    parser.add_argument("--kafka", default=f"{KAFKA_VERSION},{NEWEST}", help="versions")
    parser.add_argument("--brokers", default="1,3")
    parser.add_argument("--tls", choices=["plain", "tls", "both"], default="both")
    asked = parser.parse_args()
    paths = {name: getattr(asked, name.replace("-", "_")) for name in OF_OTHERS}
    absolute = {name: path and path.resolve() for name, path in paths.items()}
    wanted = [part for part in asked.suites.split(",") if part]
    unexplained = 0
    listed = suites(absolute)
    for suite in listed:
        if suite.runs is None or (wanted and not any(part in suite.name for part in wanted)):
            continue
        for setting in _settings(asked.kafka, asked.brokers, asked.tls):
            if suite.lacks(setting):
                continue
            show(f"{suite.name}: {setting}")
            found = run(suite, setting, WORK / f"run-{os.getpid()}")
            if found.proves_nothing:
                show("  most of it fails both ways: nothing is proved, and nothing published")
                unexplained += 1
                continue
            publish(suite.name, setting, found, listed)
            for difference in found.differences:
                ways = f"{difference.direct} | {difference.through} | {difference.reason}"
                show(f"  ≠ {difference.test}: {ways}".replace("[", r"\["))
            unexplained += len(found.unexplained)
    show(f"{unexplained} differences that nothing explains, or suites that do not run here")
    return 1 if unexplained else 0


def _settings(kafka: str, brokers: str, tls: str) -> list[Setting]:
    secure = {"plain": (False,), "tls": (True,), "both": (False, True)}[tls]
    return [
        Setting(version, int(count), tls=over_tls)
        for version in kafka.split(",")
        for count in brokers.split(",")
        for over_tls in secure
    ]


if __name__ == "__main__":
    sys.exit(main())
