"""Fixtures all tests share: a real Kafka per session (started on first use), free ports, profiles.

`kafka` is one broker with Kafka's own share groups on, `kafka_pair` two (the second may be killed
and restarted: the first is the controller). Both are shared by the whole session (of a worker, if
there are several): take topic and group names from `fresh_name`, and leave no broker stopped.
"""

from __future__ import annotations

import gc
import itertools
import os
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from gateway.embedded import process
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import FREE_PORT_MAX, FREE_PORT_MIN, free_ports
from tests.rig import quick_start
from tests.rig.clients.java_programs import JavaPrograms, compile_programs
from tests.rig.clients.kafka_tools import KafkaTools
from tests.rig.kafka import FEW_THREADS, NEVER_KILLED, QUICK_TURNS, create_topic
from tests.rig.logs import log_as_tests_do
from tests.rig.spark_jvm import start_quickly

ROOT = Path(__file__).resolve().parent.parent
pytest_plugins = ["tests.rig.schedule"]

settings.register_profile(
    "fast",
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", max_examples=2_000, deadline=None)
settings.register_profile(  # for tests.mutation: that an example fails is all it asks
    "unshrunk", parent=settings.get_profile("fast"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def stale_modules(root: Path) -> list[str]:
    """Sources that are newer than the extension module compiled from them."""
    stale = []
    for package in ("gateway", "dispatcher", "keyway"):
        for compiled in sorted((root / package).rglob("*.so")):
            source = compiled.with_name(compiled.name.split(".", 1)[0] + ".py")
            if source.exists() and source.stat().st_mtime > compiled.stat().st_mtime:
                stale.append(str(source.relative_to(root)))
    return stale


def ports_of_worker(worker: int, workers: int) -> tuple[int, int]:
    """Where `free_ports` looks, from and to: each worker in a part of its own, for between finding
    a port and listening there (or while a gateway restarts) the other could take it.
    """
    share = (FREE_PORT_MAX - FREE_PORT_MIN) // workers
    first = FREE_PORT_MIN + worker * share
    return first, first + share


def pytest_configure(config: pytest.Config) -> None:
    start_quickly(os.environ)
    log_as_tests_do()
    quick_start.allow()
    if worker := getattr(config, "workerinput", None):
        number, workers = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
        process.FREE_PORT_MIN, process.FREE_PORT_MAX = ports_of_worker(number, workers)
    stale = stale_modules(ROOT)
    if stale:
        raise pytest.UsageError(
            f"compiled modules are older than their sources ({', '.join(stale)}):"
            " run `make compile` (or `make interpreted` to remove them)"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The modules and tests stay until the end: to look through them for garbage, again and again,
    takes a tenth of the unit tests' CPU.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logs_can_be_captured() -> Iterator[None]:
    """A command that a test runs in this process configures the logs for all later tests."""
    yield
    log_as_tests_do()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(1, properties=QUICK_TURNS | NEVER_KILLED) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_pair() -> Iterator[KafkaCluster]:
    with KafkaCluster(2, properties=FEW_THREADS) as cluster:
        yield cluster


@pytest.fixture
def free_port() -> int:
    return free_ports(1)


_counter = itertools.count(1)


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """Names of topics and groups that no other test of the session has."""

    def name(prefix: str) -> str:
        return f"{prefix}-{next(_counter)}-{uuid.uuid4().hex[:6]}"

    return name


@pytest.fixture
def topic(kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic on `kafka` and returns its name: topic(partitions=4, config={...})."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = fresh_name("topic")
        create_topic(kafka.bootstrap_servers, name, partitions=partitions, config=config)
        return name

    return create


@pytest.fixture(scope="session")
def java_programs() -> JavaPrograms:
    return compile_programs()


@pytest.fixture(scope="session")
def kafka_tools(java_programs: JavaPrograms) -> Iterator[KafkaTools]:
    with KafkaTools(java_programs) as tools:
        yield tools
