"""The judgement of `keyway doctor`: facts about a node's surroundings in, findings out. Pure; the
facts come from gateway/node/doctor.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from gateway.core.cluster.acl import READ, WRITE
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode, error_name

METADATA_BYTES_WANTED = 4_096  # Kafka's default of offset.metadata.max.bytes; span_max counts on it
CLOCK_OFF_S_MAX = 5.0  # by_duration starts and lags in seconds are wrong by as much
REDIS_WANTED = (5, 0)  # streams, and scripts that ask for the time before they write
REDIS_TESTED = (6, 2)  # the oldest: the embedded one
ROUND_TRIP_S_WANTED = 0.005  # every record waits for two
FREE_BYTES_WANTED = 1024**3  # the embedded Redis rewrites its file beside the old one
NAMES_SHOWN_MAX = 3
_OF_BROKERS = ("version", "metadata limit")  # told by each of itself
NOT_TOLD = -2_147_483_648  # a broker without the answer

# The first release with this version of an API, the latest first (Kafka's message definitions).
_RELEASES = (
    (ApiKey.SHARE_FETCH, 2, "4.2 or later"),
    (ApiKey.FETCH, 18, "4.1"),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, "4.0"),
    (ApiKey.FETCH, 17, "3.9"),
    (ApiKey.FETCH, 16, "3.7 or 3.8"),
    (ApiKey.FETCH, 15, "3.5 or 3.6"),
    (ApiKey.FETCH, 13, "3.1 to 3.4"),
)
_TOPIC_IDS = (ApiKey.FETCH, 13)  # Key-Shared groups name topics by their ids


class Status(Enum):
    OK = "ok"
    WARNING = "warning"  # a node runs all the same
    FAULT = "fault"
    SKIPPED = "skipped"  # not looked at: nobody could be asked


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is empty if there is nothing to mend."""

    check: str
    status: Status
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Broker:
    """`silence`: why it did not answer; then the rest is empty. `metadata_bytes` None: not told."""

    broker_id: int
    address: str
    silence: str = ""
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    metadata_bytes: int | None = None
    config_error: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`operations`: of each topic, as Kafka's bit field, with the gateway's own identity;
    `group_error`: Kafka's answer to a question that needs READ on a group; `config_error`: to one
    for a group's settings, empty if they were told.
    """

    cluster_id: str
    brokers: Sequence[Broker]
    operations: Mapping[str, int]
    group_error: int
    config_error: str = ""


@dataclass(frozen=True, slots=True)
class Redis:
    """`save`: the points of RDB; None: not told. `max_bytes` 0: no limit. `closed`: why it tells
    nothing of itself but its clock; then what is not told has no meaning.
    """

    version: str
    append_only: bool
    save: str | None
    write_failed: bool
    max_bytes: int
    eviction: str
    round_trip_s: float
    clock_off_s: float  # its clock, less that of this machine
    replicas_wanted: int | None = None  # to write; None: not told, or no Sentinels
    mode: str = "standalone"
    role: str = "master"
    closed: str = ""
    refusal: str = ""  # why it does not take writes


def ok(check: str, found: str) -> Finding:
    return Finding(check, Status.OK, found)


def warning(check: str, found: str, mend: str) -> Finding:
    return Finding(check, Status.WARNING, found, mend)


def fault(check: str, found: str, mend: str) -> Finding:
    return Finding(check, Status.FAULT, found, mend)


def skipped(check: str, away: str) -> Finding:
    """`away` would have told about it."""
    return Finding(check, Status.SKIPPED, f"not looked at: {away} could not be asked")


def of_modules(described: str, compiler: str | None) -> Finding:
    """`described`: as `keyway --version` says it; `compiler`: its path."""
    if described == "compiled":
        return ok("compiler", "the hot modules are compiled")
    mend = "run `make compile`" if compiler else "install a C compiler (gcc), then `make compile`"
    return warning("compiler", f"{described}; C compiler: {compiler or 'none'}", mend)


# -------------------------------------------------------------------------------------- upstream


def of_silent_upstream(bootstrap_servers: str, reason: str) -> Iterator[Finding]:
    """No broker answered. Often the reason already names the server."""
    yield fault(
        "upstream",
        reason if bootstrap_servers in reason else f"{bootstrap_servers}: {reason}",
        "check upstream.bootstrap_servers, sasl and tls, and that the brokers run",
    )
    for check in (*_OF_BROKERS, "permissions"):
        yield skipped(check, "upstream")


def of_cluster(cluster: Cluster) -> Iterator[Finding]:
    """The findings about the cluster, without those about permissions."""
    silent = [known for known in cluster.brokers if known.silence]
    for broker in silent:
        yield fault(
            "upstream",
            f"broker {broker.broker_id} at {broker.address} does not answer: {broker.silence}",
            "start it, or open the way to its advertised address from this machine",
        )
    answering = [known for known in cluster.brokers if not known.silence]
    if not answering:
        yield from (skipped(check, "upstream") for check in _OF_BROKERS)
        return
    if not silent:
        answer = "1 broker answers" if len(answering) == 1 else f"{len(answering)} brokers answer"
        yield ok("upstream", f"cluster {cluster.cluster_id}, {answer}")
    yield _release(answering)
    yield _metadata_limit(answering)


def _release(brokers: Sequence[Broker]) -> Finding:
    oldest = min((broker.versions for broker in brokers), key=_age)
    release = release_of(oldest)
    key, version = _TOPIC_IDS
    if not _has(oldest, key, version):
        return fault(
            "version",
            f"Kafka {release}: this release does not read topics by their ids",
            "Key-Shared groups need Kafka 3.1 or later; plain clients work",
        )
    return ok("version", f"Kafka {release}")


def release_of(versions: Mapping[int, tuple[int, int]]) -> str:
    """Brokers do not tell their release: it is known by the APIs they offer."""
    for key, version, release in _RELEASES:
        if _has(versions, key, version):
            return release
    return "before 3.1"


def _has(versions: Mapping[int, tuple[int, int]], key: int, version: int) -> bool:
    return key in versions and versions[key][1] >= version


def _age(versions: Mapping[int, tuple[int, int]]) -> int:
    """The higher, the later."""
    return sum(_has(versions, key, version) for key, version, _ in _RELEASES)


def _metadata_limit(brokers: Sequence[Broker]) -> Finding:
    limits = {
        broker.broker_id: broker.metadata_bytes
        for broker in brokers
        if broker.metadata_bytes is not None
    }
    if not limits:
        reason = brokers[0].config_error or "not told"
        return warning(
            "metadata limit",
            f"offset.metadata.max.bytes is not known: {reason}",
            "grant DESCRIBE_CONFIGS on the cluster; Kafka's default is assumed until then",
        )
    lowest = min(limits, key=limits.__getitem__)
    found = f"offset.metadata.max.bytes is {limits[lowest]}"
    if limits[lowest] < METADATA_BYTES_WANTED:
        return warning(
            "metadata limit",
            f"{found} on broker {lowest}",
            f"set it to {METADATA_BYTES_WANTED}: the settled records of a full span do not fit, and"
            " come again if Redis is lost",
        )
    return ok("metadata limit", found)


def of_permissions(cluster: Cluster, dead_letter_topics: Sequence[str]) -> Iterator[Finding]:
    """The findings about permissions of the gateway's own identity. Clients need their own."""
    if cluster.group_error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        yield fault(
            "permissions",
            f"groups: {error_name(cluster.group_error)}",
            "grant the gateway READ on the groups: it commits for them",
        )
    if cluster.config_error:
        yield warning(
            "permissions",
            f"settings of groups in Kafka: {cluster.config_error}",
            "grant the gateway DESCRIBE_CONFIGS on the groups: until then only keyway.yaml counts",
        )
    told = {name: bits for name, bits in cluster.operations.items() if bits != NOT_TOLD}
    unreadable = [name for name, bits in sorted(told.items()) if not bits & 1 << READ]
    for topic in dead_letter_topics:
        if topic not in cluster.operations:
            yield fault(
                "permissions",
                f"the dead-letter topic {topic} does not exist, or the gateway may not see it",
                "create it, and grant the gateway WRITE and DESCRIBE on it",
            )
        elif topic in told and not told[topic] & 1 << WRITE:
            yield fault(
                "permissions", f"no WRITE on the dead-letter topic {topic}", "grant it the gateway"
            )
    topics = "1 topic" if len(told) == 1 else f"{len(told)} topics"
    if unreadable:
        shown = ", ".join(unreadable[:NAMES_SHOWN_MAX])
        more = len(unreadable) - NAMES_SHOWN_MAX
        yield warning(
            "permissions",
            f"no READ on {len(unreadable)} of {topics}: {shown}"
            + (f" and {more} more" if more > 0 else ""),
            "grant the gateway READ on the topics of Key-Shared groups",
        )
    elif cluster.group_error != ErrorCode.GROUP_AUTHORIZATION_FAILED:
        yield ok("permissions", f"READ on groups and on {topics}")


# ----------------------------------------------------------------------------------------- Redis


def of_silent_redis(reason: str) -> Iterator[Finding]:
    yield fault("Redis", f"it does not answer: {reason}", "start Redis, and check state.redis_url")
    for check in ("Redis persistence", "clock"):
        yield skipped(check, "Redis")


def of_redis(redis: Redis) -> Iterator[Finding]:
    if redis.closed:
        yield warning(
            "Redis",
            f"it does not tell how it is set: {redis.closed}",
            "allow its user the command INFO (+info), or look at maxmemory-policy yourself",
        )
        yield skipped("Redis persistence", "Redis")
    else:
        yield from _answering(redis)
        yield from _replicas(redis)
        yield from _persistence(redis)
    if redis.refusal and redis.role != "slave":
        yield fault(
            "Redis",
            f"it refuses to write: {redis.refusal}",
            "raise its maxmemory, or mend what else the text says; groups wait until then",
        )
    off = abs(redis.clock_off_s)
    if off > CLOCK_OFF_S_MAX:
        yield warning(
            "clock",
            f"the clock of Redis is {off:.0f} s off",
            "let NTP or chrony set the clocks of both machines",
        )
    else:
        yield ok("clock", f"{off:.1f} s beside the clock of Redis; brokers tell theirs to nobody")


def evicts(max_bytes: int, policy: str) -> bool:
    """Whether Redis deletes keys on its own where it needs room (maxmemory-policy)."""
    return max_bytes > 0 and policy != "noeviction"


def _answering(redis: Redis) -> Iterator[Finding]:
    found = f"Redis {redis.version} answers in {redis.round_trip_s * 1000:.1f} ms"
    if redis.round_trip_s > ROUND_TRIP_S_WANTED:
        yield warning("Redis", found, "move it nearer: every record waits for two round trips")
    else:
        yield ok("Redis", found)
    if _version(redis.version) < REDIS_WANTED:
        yield fault(
            "Redis",
            f"Redis {redis.version} is too old",
            f"take {'.'.join(map(str, REDIS_TESTED))} or newer",
        )
    elif _version(redis.version) < REDIS_TESTED:
        yield warning(
            "Redis",
            f"Redis {redis.version} is older than all that Keyway is tested with",
            f"take {'.'.join(map(str, REDIS_TESTED))} or newer",
        )
    if evicts(redis.max_bytes, redis.eviction):
        yield fault(
            "Redis",
            f"maxmemory-policy is {redis.eviction}: leases and settled records may be evicted",
            "set maxmemory-policy to noeviction",
        )
    if redis.mode == "cluster":
        yield fault(
            "Redis",
            "it is one of a Redis Cluster: the node does not follow its redirections",
            "name a single Redis, or a primary with replicas",
        )
    if redis.role == "slave":
        yield fault(
            "Redis",
            "it is a replica, which refuses to write",
            "name the primary in state.redis_url, or its Sentinels",
        )


def _version(told: str) -> tuple[int, ...]:
    """Of a server that tells none it is not judged."""
    words = told.split(".")[: len(REDIS_TESTED)]
    return tuple(map(int, words)) if all(map(str.isdecimal, words)) else REDIS_TESTED


def _replicas(redis: Redis) -> Iterator[Finding]:
    if redis.replicas_wanted == 0:
        yield warning(
            "Redis",
            "Sentinels name it, and it writes without a replica: cut off, it goes on beside the"
            " next primary",
            "set min-replicas-to-write to 1, with three servers (docs/several-nodes.md)",
        )


def _persistence(redis: Redis) -> Iterator[Finding]:
    if redis.write_failed:
        yield fault(
            "Redis persistence",
            "its last write to disk failed",
            "look at its log, and at the free space of its disk",
        )
    elif redis.append_only:
        yield ok("Redis persistence", "append-only file")
    else:
        saved = {"": "nothing", None: "not told"}.get(redis.save, f"RDB: {redis.save}")
        yield warning(
            "Redis persistence",
            f"no append-only file ({saved})",
            "set appendonly to yes: else records settled since the last commit come again when"
            " Redis restarts",
        )


def of_embedded(directory: str, *, writable: bool, free_bytes: int) -> Finding:
    if not writable:
        return fault(
            "Redis",
            f"the embedded Redis cannot write to {directory}",
            "make the folder writable, set state.directory, or set state.redis_url",
        )
    free = f"{free_bytes / 1024**3:.1f} GiB free"
    if free_bytes < FREE_BYTES_WANTED:
        return warning("Redis", f"embedded, in {directory}: {free}", "free some disk space")
    return ok("Redis", f"embedded, in {directory}: {free}, append-only file")


# --------------------------------------------------------------------------------------- secrets


def of_files(readable: Mapping[tuple[str, Path], bool]) -> Iterator[Finding]:
    """Whether everybody on this machine can read a file with secrets, by option and path."""
    for (option, path), by_all in readable.items():
        if by_all:
            yield warning(
                "secrets",
                f"everybody on this machine can read {path} ({option})",
                f"chmod o= {path}; its owner or group is the node's user",
            )
    if readable and not any(readable.values()):
        files = "1 file" if len(readable) == 1 else f"{len(readable)} files"
        yield ok("secrets", f"{files}, readable for some users alone")


# ----------------------------------------------------------------------------------------- ports


def of_ports(
    ports: Mapping[str, int],
    refused: Mapping[str, str],
    *,
    node_listens: bool,
    brokers_known: bool = True,
) -> Iterator[Finding]:
    """`ports` and `refused`, the reason why a port cannot be had, by option. `brokers_known`: those
    of virtual brokers are among them.
    """
    if not brokers_known:
        yield skipped("ports of brokers", "upstream")
    options: dict[int, str] = {}
    for option, port in ports.items():
        if port in options:
            yield fault(
                "ports",
                f"{options[port]} and {option} are both {port}",
                "choose another port for one of them",
            )
        options.setdefault(port, option)
    if refused and node_listens:
        yield ok("ports", "a node listens on them already")
        return
    for reason in refused.values():
        yield fault("ports", reason, "end the other process, or choose another port")
    if not refused:
        yield ok("ports", ", ".join(map(str, sorted(options))) + " are free")
