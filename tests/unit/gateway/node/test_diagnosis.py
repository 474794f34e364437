"""The findings of `keyway doctor`: all is well, a warning, or a fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.node.diagnosis import (
    NOT_TOLD,
    Broker,
    Cluster,
    Finding,
    Redis,
    Status,
    of_cluster,
    of_embedded,
    of_modules,
    of_permissions,
    of_ports,
    of_redis,
    of_silent_redis,
    of_silent_upstream,
    release_of,
)

VERSIONS = {int(ApiKey.FETCH): (4, 18), int(ApiKey.SHARE_FETCH): (1, 2)}
BROKER = Broker(1, "kafka-1:9092", versions=VERSIONS, metadata_bytes=4_096)
ALL = (1 << 16) - 8
CLUSTER = Cluster("c", [BROKER], {"orders": ALL, "letters": ALL}, ErrorCode.UNKNOWN_MEMBER_ID)
REDIS = Redis(
    version="7.2.4",
    append_only=True,
    save="",
    write_failed=False,
    max_bytes=0,
    eviction="noeviction",
    round_trip_s=0.000_3,
    clock_off_s=0.04,
)


def marks(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Their checks and states; each one that is amiss says how to mend it."""
    found = list(findings)
    assert all(
        bool(finding.mend) == (finding.status in (Status.WARNING, Status.FAULT))
        for finding in found
    )
    return [(finding.check, finding.status.value) for finding in found]


def test_a_cluster_that_is_well() -> None:
    findings = list(of_cluster(CLUSTER))
    assert [finding.found for finding in findings] == [
        "cluster c, 1 broker answers",
        "Kafka 4.2 or later",
        "offset.metadata.max.bytes is 4096",
    ]
    assert {status for _, status in marks(findings)} == {"ok"}


def test_a_broker_that_does_not_answer_is_named() -> None:
    silent = Broker(2, "kafka-2:9092", silence="Connection refused")
    first, *rest = of_cluster(replace(CLUSTER, brokers=[BROKER, silent]))
    assert first.status is Status.FAULT
    assert first.found == "broker 2 at kafka-2:9092 does not answer: Connection refused"
    assert marks(rest) == [("version", "ok"), ("metadata limit", "ok")], "of those that answer"
    assert marks(of_cluster(replace(CLUSTER, brokers=[silent]))) == [
        ("upstream", "fault"),
        ("version", "skipped"),
        ("metadata limit", "skipped"),
    ]


@pytest.mark.parametrize("reason", ["k:9092: Connection refused", "Connection refused"])
def test_an_upstream_that_is_away_is_named_once(reason: str) -> None:
    first, *rest = of_silent_upstream("k:9092", reason)
    assert (first.status, first.found) == (Status.FAULT, "k:9092: Connection refused")
    assert "bootstrap_servers" in first.mend
    assert [finding.check for finding in rest] == ["version", "metadata limit", "permissions"]
    assert {finding.found for finding in rest} == {"not looked at: upstream could not be asked"}


@pytest.mark.parametrize(
    ("fetch", "others", "release"),
    [
        (12, {}, "before 3.1"),
        (13, {}, "3.1 to 3.4"),
        (16, {}, "3.7 or 3.8"),
        (17, {}, "3.9"),
        (17, {ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1)}, "4.0"),
        (18, {ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1), ApiKey.SHARE_FETCH: (1, 1)}, "4.1"),
        (18, {ApiKey.SHARE_FETCH: (1, 2)}, "4.2 or later"),
    ],
)
def test_the_release_is_known_by_the_apis(
    fetch: int, others: dict[int, tuple[int, int]], release: str
) -> None:
    assert release_of({int(ApiKey.FETCH): (0, fetch), **others}) == release


def test_the_oldest_broker_decides() -> None:
    old = Broker(2, "kafka-2:9092", versions={int(ApiKey.FETCH): (0, 12)}, metadata_bytes=4_096)
    found = {
        finding.check: finding for finding in of_cluster(replace(CLUSTER, brokers=[BROKER, old]))
    }
    assert found["version"].status is Status.FAULT
    assert "before 3.1" in found["version"].found


def test_the_lowest_metadata_limit_counts() -> None:
    low = replace(BROKER, broker_id=2, metadata_bytes=1_000)
    *_, limit = of_cluster(replace(CLUSTER, brokers=[BROKER, low]))
    assert (limit.status, limit.found) == (
        Status.WARNING,
        "offset.metadata.max.bytes is 1000 on broker 2",
    )
    *_, limit = of_cluster(
        replace(CLUSTER, brokers=[replace(BROKER, metadata_bytes=None, config_error="denied")])
    )
    assert (limit.status, limit.found) == (
        Status.WARNING,
        "offset.metadata.max.bytes is not known: denied",
    )


def test_permissions() -> None:
    (finding,) = of_permissions(CLUSTER, ["letters"])
    assert (finding.status, finding.found) == (Status.OK, "READ on groups and on 2 topics")
    denied = replace(CLUSTER, group_error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert marks(of_permissions(denied, [])) == [("permissions", "fault")]
    hidden = replace(CLUSTER, config_error="configuration of 'g': GROUP_AUTHORIZATION_FAILED")
    assert marks(of_permissions(hidden, [])) == [("permissions", "warning"), ("permissions", "ok")]
    describe = 1 << 8
    blind = replace(CLUSTER, operations={f"t{n}": describe for n in range(5)} | {"orders": ALL})
    (finding,) = of_permissions(blind, [])
    assert finding.status is Status.WARNING, "perhaps on purpose"
    assert finding.found == "no READ on 5 of 6 topics: t0, t1, t2 and 2 more"
    untold = replace(CLUSTER, operations={"orders": NOT_TOLD})
    assert marks(of_permissions(untold, ["orders"])) == [("permissions", "ok")]


def test_dead_letters_need_a_topic_that_may_be_written() -> None:
    assert "missing" in next(of_permissions(CLUSTER, ["missing"])).found
    readable = replace(CLUSTER, operations={"letters": 1 << 3})
    first, *_ = of_permissions(readable, ["letters"])
    assert (first.status, first.found) == (
        Status.FAULT,
        "no WRITE on the dead-letter topic letters",
    )


def test_redis_that_is_well() -> None:
    findings = list(of_redis(REDIS))
    assert marks(findings) == [("Redis", "ok"), ("Redis persistence", "ok"), ("clock", "ok")]
    assert findings[0].found == "Redis 7.2.4 answers in 0.3 ms"


@pytest.mark.parametrize(
    ("redis", "check", "status", "words"),
    [
        (replace(REDIS, round_trip_s=0.02), "Redis", Status.WARNING, "20.0 ms"),
        (replace(REDIS, max_bytes=9, eviction="allkeys-lru"), "Redis", Status.FAULT, "allkeys-lru"),
        (replace(REDIS, mode="cluster"), "Redis", Status.FAULT, "Redis Cluster"),
        (replace(REDIS, version="5.0.6"), "Redis", Status.WARNING, "5.0.6 is older"),
        (replace(REDIS, version="4.0.14"), "Redis", Status.FAULT, "4.0.14 is too old"),
        (replace(REDIS, role="slave"), "Redis", Status.FAULT, "a replica"),
        (replace(REDIS, role="slave", refusal="no"), "Redis", Status.FAULT, "a replica"),
        (replace(REDIS, refusal="OOM"), "Redis", Status.FAULT, "refuses to write: OOM"),
        (replace(REDIS, write_failed=True), "Redis persistence", Status.FAULT, "failed"),
        (replace(REDIS, append_only=False), "Redis persistence", Status.WARNING, "nothing"),
        (
            replace(REDIS, append_only=False, save="3600 1"),
            *("Redis persistence", Status.WARNING, "RDB: 3600 1"),
        ),
        (
            replace(REDIS, append_only=False, save=None),
            *("Redis persistence", Status.WARNING, "not told"),
        ),
        (replace(REDIS, clock_off_s=-61.0), "clock", Status.WARNING, "61 s off"),
    ],
)
def test_redis_that_is_amiss(redis: Redis, check: str, status: Status, words: str) -> None:
    findings = list(of_redis(redis))
    marks(findings)
    amiss = [finding for finding in findings if finding.status is not Status.OK]
    assert [(finding.check, finding.status) for finding in amiss] == [(check, status)]
    assert words in amiss[0].found


@pytest.mark.parametrize("version", ["6.2.0", "10.0", "7.4.2-v1", "255.255.255", "of its own"])
def test_a_redis_that_is_not_older_or_does_not_say(version: str) -> None:
    assert marks(list(of_redis(replace(REDIS, version=version))))[0] == ("Redis", "ok")


def test_a_redis_that_is_away() -> None:
    assert marks(of_silent_redis("Connection refused")) == [
        ("Redis", "fault"),
        ("Redis persistence", "skipped"),
        ("clock", "skipped"),
    ]


def test_a_redis_that_tells_nothing_of_itself() -> None:
    closed = replace(REDIS, closed="no permission to run 'info'", append_only=False, eviction="")
    found = list(of_redis(closed))
    assert marks(found) == [
        ("Redis", "warning"),
        ("Redis persistence", "skipped"),
        ("clock", "ok"),
    ]
    assert "no permission to run 'info'" in found[0].found


def test_a_limit_without_eviction_is_no_fault() -> None:
    assert "fault" not in dict(marks(of_redis(replace(REDIS, max_bytes=9)))).values()


def test_the_embedded_redis() -> None:
    gib = 1024**3
    assert of_embedded("d", writable=True, free_bytes=5 * gib).status is Status.OK
    assert of_embedded("d", writable=True, free_bytes=gib // 2).status is Status.WARNING
    assert of_embedded("d", writable=False, free_bytes=5 * gib).status is Status.FAULT


def test_ports() -> None:
    ports = {"listen.bootstrap_port": 9192, "admin.port": 9180, "listen.port_base + 1": 9201}
    (finding,) = of_ports(ports, {}, node_listens=False)
    assert (finding.status, finding.found) == (Status.OK, "9180, 9192, 9201 are free")
    taken = {"admin.port": "cannot listen on 127.0.0.1:9180: Address already in use"}
    (finding,) = of_ports(ports, taken, node_listens=False)
    assert (finding.status, finding.found) == (Status.FAULT, taken["admin.port"])
    assert marks(of_ports(ports, taken, node_listens=True)) == [("ports", "ok")]
    unknown = of_ports(ports, {}, node_listens=False, brokers_known=False)
    assert marks(unknown) == [("ports of brokers", "skipped"), ("ports", "ok")]


def test_two_options_with_the_same_port() -> None:
    first, *_ = of_ports({"admin.port": 9201, "listen.port_base + 1": 9201}, {}, node_listens=False)
    assert (first.status, first.found) == (
        Status.FAULT,
        "admin.port and listen.port_base + 1 are both 9201",
    )


def test_modules_that_are_not_compiled() -> None:
    assert of_modules("compiled", None).status is Status.OK
    assert of_modules("interpreted", "/usr/bin/cc").mend == "run `make compile`"
    assert "install a C compiler" in of_modules("interpreted", None).mend
