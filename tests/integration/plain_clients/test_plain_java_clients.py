"""Plain Java clients through the gateway: the programs of tests/rig/clients/java and
Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rig.clients.java_checks import ADMIN, Report, report_of
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.kafka_tools import SHARE_GROUPS, KafkaTools, table
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import read_partition
from tests.rig.operating import members_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
# Side by side in one JVM; a KIP-848 rebalance takes heartbeats.
PLAIN_CHECKS_S_MAX = 90.0
PLAIN = (
    "compressions",
    "acknowledgements",
    "transactions",
    "classic_group",
    "kip848_group",
    "transactional_offsets",
)


@pytest.fixture(scope="module")
def plain_report(java_programs: JavaPrograms, front: str) -> Report:
    arguments = (front, "java-plain")
    return report_of(java_programs.run("PlainChecks", *arguments, seconds_max=PLAIN_CHECKS_S_MAX))


@pytest.fixture(scope="module")
def admin_report(java_programs: JavaPrograms, front: str) -> Report:
    return report_of(java_programs.run("AdminChecks", front, "java-admin", "1", seconds_max=60))


@pytest.mark.parametrize("check", PLAIN)
def test_producers_consumers_and_groups(plain_report: Report, check: str) -> None:
    assert plain_report.checks.get(check) == "OK"


@pytest.mark.parametrize("check", ADMIN)
def test_admin_client(admin_report: Report, check: str) -> None:
    assert admin_report.checks.get(check) == "OK"


def test_admin_client_learns_no_other_address(
    admin_report: Report, gateway: GatewayProcess
) -> None:
    assert admin_report.addresses
    ours = {gateway.bootstrap, gateway.address_of(1)}
    strangers = {api: found - ours for api, found in admin_report.addresses.items() if found - ours}
    assert not strangers


def test_console_tools(front: str, java_programs: JavaPrograms, topic: Topic) -> None:
    name = topic(partitions=2)
    lines = "".join(f"key-{at}:line {at}\n" for at in range(200))
    java_programs.console_producer(
        *(front, name, lines, "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        seconds_max=60,
    )
    output = java_programs.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", front, "--topic", name, "--from-beginning"),
        *("--max-messages", "200", "--timeout-ms", "100000"),
        *("--formatter-property", "print.key=true"),
        *("--formatter-property", "key.separator=:"),
        seconds_max=60,
    )
    assert sorted(output.splitlines()) == sorted(lines.splitlines())


@pytest.mark.deep
def test_perf_tools(front: str, java_programs: JavaPrograms, topic: Topic) -> None:
    """100,000 records at full speed: frames in every size and at every boundary."""
    name = topic(partitions=4)
    java_programs.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", front, "--topic", name, "--num-records", "100000"),
        *("--record-size", "200", "--throughput", "-1"),
        *("--command-property", "acks=all", "batch.size=65536"),
        seconds_max=90,
    )
    output = java_programs.run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", front, "--topic", name, "--num-records", "100000"),
        *("--timeout", "100000", "--hide-header"),
        seconds_max=90,
    )
    assert int(float(output.split(",")[4])) >= 100_000, output


@pytest.mark.deep
def test_console_share_consumer(
    front: str, java_programs: JavaPrograms, topic: Topic, share_group: Group
) -> None:
    """Kafka's own command line share consumer."""
    name = topic(partitions=1)
    lines = "".join(f"line {at}\n" for at in range(50))
    java_programs.console_producer(front, name, lines, seconds_max=60)
    assert len(read_partition(front, name, 0)) == 50
    output = java_programs.run(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", front, "--topic", name, "--group", share_group()),
        *("--max-messages", "50", "--timeout-ms", "100000"),
        seconds_max=60,
    )
    assert sorted(output.splitlines()) == sorted(f"line {at}" for at in range(50))


def test_share_group_tool_describes_the_group(
    gateway: GatewayProcess,
    kafka_tools: KafkaTools,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
) -> None:
    """kafka-share-groups --describe --members shows the member, as of any share group."""
    name, group = topic(partitions=1), share_group()
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    member.poll()
    member.begin_consume()
    wait_until(lambda: member.name in members_of(gateway, group), what="it joins", deadline_s=30)
    said = kafka_tools.run(
        SHARE_GROUPS, gateway.bootstrap, "--describe", "--group", group, "--members"
    )
    member.end_consume()
    member.close()
    assert [row["CLIENT-ID"] for row in table(said)] == [member.name]
