"""A page of the documents, run from top to bottom against a node of its own.

Commands run in bash as they stand, with a PATH on which `keyway` and Kafka's tools are those of
this checkout, and with the node's ports in place of the default ones. A program that the page shows
runs from its command to the end of the page.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from gateway.embedded.jars import kafka_classpath, kafka_libs, shared_classes
from gateway.embedded.process import free_ports, kill_child, start_child
from tests.rig import fork_server
from tests.rig.clients.java_programs import JVM_OPTIONS
from tests.rig.gateway_process import BROKER_IDS_MAX, REPOSITORY, GatewayProcess
from tests.rig.patience import patient_s, wait_until
from tests.rig.quick_start import server
from tests.rig.transcripts import Command, File, same_lines, steps

COMMAND_S_MAX = 120.0
OUTPUT_S_MAX = 60.0
CONFIGURATION = "keyway.yaml"
TOOLS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups.sh": "org.apache.kafka.tools.GroupsCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": (  # after 1.5 s, its own timeout, it gives up
        "org.apache.kafka.tools.ConsoleProducer --request-timeout-ms 60000"
    ),
    "kafka-console-share-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRefs = stderr
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
"""

# Commands that a page shows and no page runs, by their beginning.
NOT_RUN = {
    "keyway pipeline run": "test_flights_pipeline.py runs the page's file, and kills it",
    "git clone": "the tests run in a checkout",
    "keyway doctor": "test_doctor.py runs it, before a node starts and beside one",
    "keyway distribute": "test_demo_clusters.py and tests/spark run it, between several clusters",
    "keyway offsets": "test_commands.py runs it, between two clusters",
    "keyway serve": "the node of every page is started by it",
    "make bench": "ten minutes on a machine without other work; tests/bench has its own tests",
    "make demo": "test_demo.py and test_demo_clusters.py run them",
    "make campaign": "needs registries that run already; tests/peers is run by it",
    "pip install": "the tests run in an environment with all packages",
    "spark-submit": "needs a Spark cluster",
}


def reason_not_to_run(line: str) -> str | None:
    return next((NOT_RUN[words] for words in NOT_RUN if line.startswith(words)), None)


def settings_of(page: list[File | Command]) -> dict[str, Any]:
    """The keyway.yaml that the page shows; {} if it shows none."""
    files = [step for step in page if isinstance(step, File) and step.name == CONFIGURATION]
    assert len(files) <= 1, "one configuration per page is run"
    return dict(yaml.safe_load(files[0].text)) if files else {}


def only_looks(line: str) -> bool:
    """True for commands that may be repeated until the node shows an earlier change."""
    looking = (
        "keyway health",
        "keyway group list",
        "keyway group describe",
        "keyway group parked",
        "keyway window list",
        "keyway broker list",
        "curl -s http",
        "tail",
        "timeout",
    )
    return line.startswith(looking) or " --describe" in line


class Page:
    def __init__(self, node: GatewayProcess, directory: Path) -> None:
        self.node = node
        self.directory = directory
        self.ports: dict[int, int] = {}  # of further listeners, as the page and the node have them
        self._programs: list[subprocess.Popen[bytes]] = []
        self._files: set[str] = set()
        self._environment = _environment(node, directory)

    def play(self, page: list[File | Command]) -> None:
        """Raises AssertionError for the first command whose output is not the one shown."""
        for step in page:
            if isinstance(step, File):
                (self.directory / step.name).write_text(self._ours(step.text))
                if not step.name.endswith((".yaml", ".properties")):  # they are no programs
                    self._files.add(step.name)
            elif reason_not_to_run(step.line) is None:
                program = set(step.line.split()) & self._files
                self._start(step) if program else self._run(step)

    def stop(self) -> None:
        for program in self._programs:
            kill_child(program)

    def _run(self, command: Command) -> None:
        printed = ""

        def as_shown() -> bool:
            nonlocal printed
            finished = subprocess.run(
                ["bash", "-c", self._ours(command.line)],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=patient_s(COMMAND_S_MAX),
                check=False,
            )
            printed = self._theirs(finished.stdout)
            return same_lines(command.output, printed)

        right = as_shown()
        if not right and only_looks(command.line):
            with suppress(TimeoutError):
                wait_until(as_shown, what="the output", deadline_s=OUTPUT_S_MAX)
                right = True
        assert right, difference(command, printed)

    def _start(self, command: Command) -> None:
        log = self.directory / f"program-{len(self._programs)}.log"
        line = ["bash", "-c", f"exec {self._ours(command.line)}"]
        self._programs.append(start_child(line, log=log, cwd=self.directory, env=self._environment))
        with suppress(TimeoutError):
            wait_until(
                lambda: same_lines(command.output, log.read_text()),
                what="the output of the program",
                deadline_s=OUTPUT_S_MAX,
            )
            return
        raise AssertionError(difference(command, log.read_text()))

    def _addresses(self) -> Iterator[tuple[str, str]]:
        yield "127.0.0.1:9192", self.node.bootstrap
        yield "127.0.0.1:9180", self.node.admin
        yield "127.0.0.1:9201", self.node.address_of(1)
        for shown, ours in self.ports.items():
            yield f"127.0.0.1:{shown}", f"127.0.0.1:{ours}"

    def _ours(self, text: str) -> str:
        for shown, ours in self._addresses():
            text = text.replace(shown, ours)
        return text

    def _theirs(self, text: str) -> str:
        for shown, ours in self._addresses():
            text = text.replace(ours, shown)
        return text


def difference(command: Command, printed: str) -> str:
    return f"$ {command.line}\nthe page shows:\n{command.output}\nit prints:\n{printed}"


def _environment(node: GatewayProcess, directory: Path) -> Mapping[str, str]:
    bin_ = directory / "bin"
    bin_.mkdir(parents=True)
    (directory / "libs").symlink_to(kafka_libs())
    settings = directory / "log4j2.properties"
    settings.write_text(LOG_SETTINGS)
    for name, main in TOOLS.items():
        options = " ".join(
            (*shared_classes(), *JVM_OPTIONS, f"-Dlog4j2.configurationFile={settings}")
        )
        _script(bin_ / name, f"exec java {options} -cp '{kafka_classpath()}' {main} \"$@\"")
    _script(bin_ / "python", f'exec {sys.executable} "$@"')
    quick = f"{sys.executable} -I -S {fork_server.__file__} run {server()}"
    _script(bin_ / "keyway", f'exec {quick} "$@"')
    contexts = directory / "config" / "keyway" / "contexts.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text(
        yaml.safe_dump({"current": "here", "contexts": {"here": {"admin": node.admin}}})
    )
    return {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "PYTHONUNBUFFERED": "1",
    }


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@contextmanager
def played(document: str, upstream: str, directory: Path) -> Iterator[Page]:
    """Runs the page and leaves its node and its programs up for the test's own steps."""
    page = steps((REPOSITORY / document).read_text(encoding="utf-8"))
    settings = settings_of(page)
    place, ports = directory / "page", dict[int, int]()
    admin, listeners = _placed(settings, place, ports)
    node = GatewayProcess(
        directory / "node",
        upstream,
        groups=settings.get("groups", ()),
        state=settings.get("state"),
        admin=admin,
        listeners=listeners,
        limits=settings.get("limits", ()),
        sasl=settings.get("upstream", {}).get("sasl"),
    )
    running = Page(node, place)
    running.ports = ports
    # Files that the configuration names are made by the commands before it.
    first = page.index(next(part for part in page if isinstance(part, File))) if listeners else 0
    running.play(page[:first])
    running.play([part for part in page if isinstance(part, File) and part.name.endswith(".yaml")])
    with node:
        try:
            running.play(page[first:])
            yield running
        finally:
            running.stop()


def _placed(
    settings: dict[str, Any], place: Path, ports: dict[int, int]
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The sections `admin` and `listen` with files of the page's folder and with free ports; of the
    listeners the ones behind the first, which every node of a test has.
    """

    def own_files(section: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {
            part: {
                name: str(place / value) if name.endswith("_file") else value
                for name, value in section[part].items()
            }
            for part in ("tls", "authentication")
            if part in section
        }
        return {**section, **own}

    listeners = []
    for listener in settings.get("listen", [])[1:]:
        free = free_ports(BROKER_IDS_MAX + 1)
        ports[listener["bootstrap_port"]] = free
        listeners.append(own_files({**listener, "bootstrap_port": free, "port_base": free + 1}))
    admin = settings.get("admin")
    return None if admin is None else own_files(admin), listeners
