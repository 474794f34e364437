"""Fixtures of the integration tests: one gateway in front of the session's Kafka, stock clients.

KEYWAY_TESTS_DIRECT=1 hands out the broker instead of the gateway: a stock client must see the same
through the gateway as there, except for key order (Kafka's own share groups have none) and
everything that needs `gateway`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.groups import DEAD_LETTERS, GROUPS
from tests.rig.identified_node import Guarded, guarded_kafka
from tests.rig.kafka import QUICK_TURNS, create_topic, set_group_config
from tests.rig.secure_kafka import SecureKafka, secure_kafka


@pytest.fixture(scope="session")
def plain_kafka() -> Iterator[KafkaCluster]:
    """A broker without share groups of its own, which tests may restart."""
    with KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as secure:
        yield secure


@pytest.fixture(scope="session")
def guarded_broker() -> Iterator[Guarded]:
    with guarded_kafka() as guarded:
        yield guarded


@pytest.fixture(scope="session")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """The session's gateway. Tests that stop or kill one start their own."""
    if DIRECT:
        pytest.skip("needs the gateway, and KEYWAY_TESTS_DIRECT=1")
    create_topic(kafka.bootstrap_servers, DEAD_LETTERS)
    directory = tmp_path_factory.mktemp("gateway")
    quick = {"commit_interval_ms": 500}  # many tests wait for the committed offset
    with GatewayProcess(directory, kafka.bootstrap_servers, groups=GROUPS, state=quick) as process:
        yield process


@pytest.fixture(scope="session")
def front(request: pytest.FixtureRequest, kafka: KafkaCluster) -> str:
    """The address stock clients get: the gateway's."""
    if DIRECT:
        return kafka.bootstrap_servers
    gateway: GatewayProcess = request.getfixturevalue("gateway")
    return gateway.bootstrap


@pytest.fixture
def share_group(kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> Callable[[str], str]:
    """Names of share groups that start at the earliest offset; the prefix chooses a policy of
    GROUPS.
    """

    def name(prefix: str = "group") -> str:
        group = fresh_name(prefix)
        if DIRECT:
            set_group_config(
                kafka.bootstrap_servers, group, {"share.auto.offset.reset": "earliest"}
            )
        return group

    return name


@pytest.fixture(scope="session")
def librdkafka_host() -> Iterator[ShareHost]:
    with ShareHost.librdkafka() as host:
        yield host


@pytest.fixture(scope="session")
def java_host(java_programs: JavaPrograms) -> Iterator[ShareHost]:
    with ShareHost.java(java_programs) as host:
        yield host


@pytest.fixture(params=["librdkafka", "java"])
def share_host(request: pytest.FixtureRequest) -> ShareHost:
    """Each stock share client in turn."""
    host: ShareHost = request.getfixturevalue(f"{request.param}_host")
    return host


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.deep)])
def any_host(request: pytest.FixtureRequest) -> ShareHost:
    """A stock share client, for what the gateway does alike for each: order, failures and contents
    are asked of both (`share_host`), the rest only by `make deep`.
    """
    host: ShareHost = request.getfixturevalue(f"{request.param}_host")
    return host


@pytest.fixture
def new_host(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str], ShareHost]]:
    """Host processes of this test alone, to be killed: new_host("java" | "librdkafka")."""
    started: list[ShareHost] = []

    def start(kind: str) -> ShareHost:
        if kind == "java":
            started.append(ShareHost.java(request.getfixturevalue("java_programs")))
        else:
            started.append(ShareHost.librdkafka())
        return started[-1]

    yield start
    for host in started:
        host.stop()
