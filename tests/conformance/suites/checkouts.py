"""Suites of others, run where their authors have them: a checkout, or a program built from one, is
an argument, and nothing of it is written or kept here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from gateway.embedded.process import free_ports, port_is_free, start_child
from tests.conformance.suites.compared import PASSED, SKIPPED, Verdicts
from tests.conformance.suites.front import Front
from tests.conformance.suites.programs import WORDS_MAX, ended, ran
from tests.rig.gateway_process import REPOSITORY
from tests.rig.patience import wait_until

SUITE_S_MAX = 1_800.0
TEST_S_MAX = 300  # pytest's own bound
PLUGINS, PLUGIN = Path(__file__).parent / "plugins", "kafka_that_runs"
QUIET = {"PYTHONDONTWRITEBYTECODE": "1"}
# What its checkout imports; docker starts no Kafka here.
_OF_AIOKAFKA = ("async-timeout>=5,<6", "cramjam>=2.11,<3", "docker>=7,<8")


def python_of_suites() -> Path:
    """An environment with the clients under test and what their suites import."""
    home = REPOSITORY / "build" / "conformance" / "python"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = [*project["optional-dependencies"]["conformance"], *_OF_AIOKAFKA]
    done = home / "complete"
    if not done.exists() or done.read_text() != "\n".join(needed):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=300)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *needed], check=True, timeout=900)
        done.write_text("\n".join(needed))
    return home / "bin" / "python"


def of_pytest(
    python: Path,
    folder: Path,
    front: Front,
    paths: Sequence[str],
    *more: str,
    environment: dict[str, str],
) -> Verdicts:
    """`paths`: files, folders or single tests below `folder`."""
    report = front.directory / "report.xml"
    report.unlink(missing_ok=True)
    words = ("-p", "no:cacheprovider", "-q", f"--timeout={TEST_S_MAX}", f"--junitxml={report}")
    said = ran(
        [str(python), "-m", "pytest", *words, *more, *paths],
        cwd=folder,
        environment={**QUIET, **environment},
        seconds_max=SUITE_S_MAX,
        check=False,
    )
    assert report.exists(), f"pytest wrote no report: {said[-WORDS_MAX:]}"
    return junit(report.read_text())


def junit(report: str) -> dict[str, str]:
    """Verdicts of a report in JUnit's form, by the names that pytest takes for single tests."""
    found = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        *parts, name = [*case.get("classname", "").split("."), case.get("name", "")]
        at = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts))
        test = "::".join(["/".join(parts[:at]) + ".py", *parts[at:], name])
        bad = [child for child in case if child.tag in ("failure", "error")]
        if bad:
            found[test] = f"failed: {' '.join((bad[0].get('message') or '').split())[:WORDS_MAX]}"
        elif test not in found:
            found[test] = SKIPPED if case.find("skipped") is not None else PASSED
    return found


def kafka_python(folder: Path, front: Front, only: Sequence[str]) -> Verdicts:
    environment = {
        "KAFKA_URI": f"kafka://{front.bootstrap}",
        "KAFKA_VERSION": front.setting.kafka,
        "KAFKA_ROOT": str(front.directory),  # it starts no broker, and wants a folder all the same
    }
    paths = only or ("test/integration",)
    return of_pytest(python_of_suites(), folder, front, paths, environment=environment)


# Not the folders that need a cluster of their own making (SASL), or a schema registry.
_CONFLUENT = ("admin", "consumer", "producer", "share_consumer")


def confluent_kafka_python(folder: Path, front: Front, only: Sequence[str]) -> Verdicts:
    paths = only or [f"tests/integration/{path}" for path in _CONFLUENT]
    return of_pytest(
        python_of_suites(),
        folder,
        front,
        paths,
        environment={"BROKERS": front.bootstrap},
    )


# Those of its tests that ask a broker, without those of SASL, whose broker they would set up.
_AIOKAFKA = (
    *("admin", "client", "conn", "consumer", "coordinator", "fetcher", "pep492", "producer"),
    *("sender", "transactional_consumer", "transactional_producer"),
)


def aiokafka(folder: Path, front: Front, only: Sequence[str]) -> Verdicts:
    """Its checkout as it is, without its parts in C."""
    return of_pytest(
        python_of_suites(),
        folder,
        front,
        only or [f"tests/test_{name}.py" for name in _AIOKAFKA],
        *("-p", PLUGIN, f"--docker-image=kafka:{front.setting.kafka}", "--no-pull"),
        environment={
            "AIOKAFKA_NO_EXTENSIONS": "1",
            "AIOKAFKA_KAFKA": front.bootstrap,
            "PYTHONPATH": str(PLUGINS),
        },
    )


def librdkafka(folder: Path, front: Front, only: Sequence[str]) -> Verdicts:
    """`folder`: a checkout that is built, with its `tests/test-runner`."""
    tests = folder / "tests"
    settings = {"metadata.broker.list": front.bootstrap, **front.librdkafka()}
    del settings["bootstrap.servers"]
    conf = front.directory / "test.conf"
    lines = [f"{name}={value}" for name, value in settings.items()]
    conf.write_text("\n".join([*lines, "test.topic.random=true", ""]))
    report = front.directory / "report.json"
    report.unlink(missing_ok=True)
    found: dict[str, str] = {}
    for test in only or LIBRDKAFKA:
        report.unlink(missing_ok=True)
        environment = {
            "RDKAFKA_TEST_CONF": str(conf),
            "TEST_REPORT": str(report),
            "TEST_KAFKA_VERSION": front.setting.kafka,
            "LD_LIBRARY_PATH": f"{folder / 'src'}:{folder / 'src-cpp'}",
            "TESTS": test,
        }
        try:
            ran(
                ["./test-runner", "-p1", "-Q"],
                cwd=tests,
                environment=environment,
                seconds_max=TEST_S_MAX / 5,
                check=False,
            )
            found |= _of_report(report, test)
        except AssertionError as error:
            found[test] = f"failed: {error}"
    return found


def _of_report(report: Path, test: str) -> dict[str, str]:
    if not report.exists():
        return {test: "failed: it ended without a report"}
    told = json.loads(re.sub(r",\s*([}\]])", r"\1", report.read_text()))["tests"]
    states = {name: outcome["state"] for name, outcome in told.items() if name.startswith(test)}
    names = {"PASSED": PASSED, "SKIPPED": SKIPPED}
    return {name: names.get(state, f"failed: {state}") for name, state in states.items()}


# Those of its tests that ask a broker: not those of its mock, of a second cluster, of brokers that
# the test stops, and of speed.
LIBRDKAFKA = (
    *("0001", "0002", "0003", "0005", "0008", "0011", "0012", "0013", "0014", "0015", "0017"),
    *("0018", "0019", "0021", "0022", "0026", "0029", "0030", "0031", "0033", "0034", "0036"),
    *("0039", "0040", "0041", "0042", "0044", "0045", "0048", "0049", "0050", "0051", "0052"),
    *("0054", "0056", "0057", "0059", "0060", "0061", "0063", "0064", "0065", "0067", "0069"),
    *("0070", "0073", "0074", "0081", "0082", "0083", "0084", "0085", "0086", "0089", "0090"),
    *("0093", "0098", "0099", "0102", "0103", "0107", "0109", "0110", "0112", "0113", "0114"),
    *("0116", "0118", "0120", "0122", "0125", "0127", "0129", "0130", "0132", "0137", "0140"),
    *("0170", "0171", "0172", "0173", "0174", "0175", "0176", "0177", "0178", "0179", "0180"),
    *("0181", "0184", "0185"),
)


def franz_go(program: Path, front: Front, only: Sequence[str]) -> Verdicts:
    """`program`: the tests of its package kgo, as `go test -c` makes them."""
    environment = {
        "KGO_SEEDS": front.bootstrap,
        "KGO_TEST_RF": str(front.setting.brokers),
        "KGO_TEST_RECORDS": "5000",
    }
    if front.ca_file is not None:
        environment["KGO_TEST_TLS"] = f"ca:{front.ca_file}"
    return of_go(program, front.directory, only, (), environment)


SARAMA_BROKERS, SARAMA_PORT = 5, 29_090  # addresses that are written in its tests
# They stop brokers, or run Java, in containers of its docker-compose.yml.
_SARAMA_WITH_DOCKER = (
    "TestFuncAdminListConsumerGroupOffsets",
    "TestConsumerFetchFollowerFailover",
    "TestFuncTxnProduceWithBrokerFailure",
    "TestJava.*",
)


def sarama(folder: Path, front: Front, only: Sequence[str]) -> Verdicts:
    """`folder`: `sarama.test`, its functional tests as `go test -c -tags functional` makes them,
    and toxiproxy's `server`, behind which they look for their brokers.
    """
    api = free_ports(1)
    words = ["-host", "127.0.0.1", "-port", str(api)]
    log = front.directory / "toxiproxy.log"
    with ended(start_child([str(folder / "server"), *words], log=log)):
        wait_until(lambda: not port_is_free(api), what="toxiproxy listens", deadline_s=30)
        for number in range(1, SARAMA_BROKERS + 1):
            port = SARAMA_PORT + number
            proxy = {"name": f"kafka{number}", "listen": f"127.0.0.1:{port}"}
            _post(f"http://127.0.0.1:{api}/proxies", {**proxy, "upstream": front.bootstrap})
        environment = {
            "TOXIPROXY_ADDR": f"http://127.0.0.1:{api}",
            "KAFKA_VERSION": front.setting.kafka,
        }
        program = folder / "sarama.test"
        return of_go(program, front.directory, only, _SARAMA_WITH_DOCKER, environment)


def go_names(tests: Sequence[str], otherwise: str) -> str:
    """A pattern of `go test` for these tests alone."""
    return f"^({'|'.join(tests)})$" if tests else otherwise


def _post(url: str, body: dict[str, str]) -> None:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        assert answer.status == 201, answer.status


def of_go(
    program: Path,
    directory: Path,
    only: Sequence[str],
    never: Sequence[str],
    environment: dict[str, str],
) -> dict[str, str]:
    """Verdicts of the tests that `go test -c` made this program of, in its words, which are kept in
    `directory`; subtests count with their test. A test that panics ends the program with all that
    run beside it: the others run then without those that are done.
    """
    log = directory / "go.log"
    log.write_text("")
    found: dict[str, str] = {}
    while True:
        said = ran(
            [
                str(program),
                *("-test.v", "-test.timeout=28m", f"-test.run={go_names(only, 'Test')}"),
                f"-test.skip={go_names([*never, *found], '$^')}",
            ],
            cwd=program.parent,
            environment=environment,
            seconds_max=SUITE_S_MAX,
            check=False,
        )
        with log.open("a") as kept:
            kept.write(said)
        names = {"PASS": PASSED, "SKIP": SKIPPED, "FAIL": f"failed: see {log}"}
        told = re.findall(r"^--- (PASS|SKIP|FAIL): (\S+)", said, re.MULTILINE)
        found |= {test: names[word] for word, test in told}
        if not told or said.rstrip().endswith(("\nPASS", "\nFAIL")):
            return found
