"""kcat, the command line on librdkafka that many scripts use (Debian: `apt install kcat`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

from tests.conformance.suites.compared import SKIPPED, Verdicts
from tests.conformance.suites.ecosystem import topics
from tests.conformance.suites.front import Front
from tests.conformance.suites.programs import ran, verdicts

PARTITIONS = 3
LINES = [f"key-{number % 9}:line {number}" for number in range(300)]


class Kcat:
    def __init__(self, front: Front, command: str) -> None:
        self.front = front
        settings = {**front.librdkafka(), "topic.metadata.refresh.interval.ms": "1000"}
        self._command = [command]
        for name, value in settings.items():
            self._command += ["-X", f"{name}={value}"]

    def _ran(self, *words: str, stdin: str = "") -> str:
        return ran([*self._command, *words], stdin=stdin)

    def _filled(self, name: str) -> str:
        topics(self.front, name, PARTITIONS)
        self._ran("-P", "-t", name, "-K", ":", stdin="\n".join([*LINES, ""]))
        return name

    def round_trip(self) -> None:
        topic = self._filled("kcat-lines")
        said = self._ran("-C", "-t", topic, "-e", "-q", "-K", ":").splitlines()
        assert sorted(said) == sorted(LINES), f"{len(said)} of {len(LINES)} read"

    def metadata(self) -> None:
        topic = self._filled("kcat-metadata")
        told = json.loads(self._ran("-L", "-J", "-t", topic))
        assert len(told["brokers"]) == self.front.setting.brokers, told["brokers"]
        assert [len(found["partitions"]) for found in told["topics"]] == [PARTITIONS]

    def offsets(self) -> None:
        topic = self._filled("kcat-offsets")
        words = [word for number in range(PARTITIONS) for word in ("-t", f"{topic}:{number}:-1")]
        ends = [int(line.split()[-1]) for line in self._ran("-Q", *words).splitlines()]
        assert sum(ends) == len(LINES), ends

    def group(self) -> None:
        topic = self._filled("kcat-group")
        words = ("-G", "kcat", "-q", "-c", str(len(LINES)), "-X", "auto.offset.reset=earliest")
        said = self._ran(*words, topic).splitlines()
        assert len(said) == len(LINES), f"{len(said)} of {len(LINES)} read"

    def headers(self) -> None:
        topic = self._filled("kcat-headers")
        words = ("-P", "-t", topic, "-p", "0", "-H", "trace=abc", "-z", "zstd")
        self._ran(*words, stdin="with a header\n")
        shown = ("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q", "-f", "%h %s\n")
        assert self._ran(*shown) == "trace=abc with a header\n"


def kcat(front: Front, only: Sequence[str]) -> Verdicts:
    command = shutil.which("kcat") or shutil.which("kafkacat")
    names = {
        "produce, consume": "round_trip",
        "metadata": "metadata",
        "offsets of times": "offsets",
        "group": "group",
        "headers, zstd": "headers",
    }
    if command is None:
        return dict.fromkeys(names, SKIPPED)
    program = Kcat(front, command)
    checks: dict[str, Callable[[], None]] = {
        name: getattr(program, method) for name, method in names.items()
    }
    return verdicts((name, check) for name, check in checks.items() if not only or name in only)
