"""The faults of one history of several nodes, drawn from its seed: each is off in half of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Per second, if nothing else is said."""

    kill: float = 0.0  # of a node; another process of it starts later
    pause: float = 0.0  # SIGSTOP, for up to 20 s
    stop: float = 0.0  # SIGTERM, and a start later
    join: float = 0.0  # a node that was not there before
    go_for_good: float = 0.0  # a planned stop without return
    drain: float = 0.0  # an operator drains a node, or ends its drain
    place: float = 0.0  # an operator moves a virtual broker
    redis_down: float = 0.0
    redis_frozen: float = 0.0
    silence: float = 0.0  # between one node and Redis
    late: float = 0.0  # requests of one node to Redis take long, for a while
    cut_off: float = 0.0  # clients do not reach one node
    disconnect: float = 0.0  # per consumer: one of its connections breaks
    leader: float = 0.0  # an upstream leader moves
    coordinator: float = 0.0  # the group gets another coordinator
    leave: float = 0.0  # per consumer
    die: float = 0.0  # per consumer
    stall: float = 0.0  # per delivery: the application is slow
    release: float = 0.0  # per record
    members_lost: float = 0.0  # a fail-over of Redis lacks the last changes of members


_STRONGEST = {
    "kill": 0.15,
    "pause": 0.15,
    "stop": 0.15,
    "join": 0.1,
    "go_for_good": 0.05,
    "drain": 0.1,
    "place": 0.1,
    "redis_down": 0.08,
    "redis_frozen": 0.08,
    "silence": 0.15,
    "late": 0.2,
    "cut_off": 0.1,
    "disconnect": 0.1,
    "leader": 0.2,
    "coordinator": 0.15,
    "leave": 0.08,
    "die": 0.08,
    "stall": 0.08,
    "release": 0.1,
}
_MEMBERS_LOST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    faults: Faults
    nodes: int
    nodes_max: int
    brokers: int
    partitions: int
    consumers: int
    records: int
    keys: int
    null_keys: float
    heartbeat_ms: int
    lock_ms: int
    grace_ms: int
    skew_ms_max: int
    commit_ms: int
    calm_after_ms: int
    filtered: bool  # each key has one consumer that takes it: what nobody takes waits for that one


def draw(rng: Random) -> Options:
    assert {*_STRONGEST, "members_lost"} == {field.name for field in fields(Faults)}
    faults = {
        name: round(rng.random() * strongest, 4) if rng.random() < 0.5 else 0.0
        for name, strongest in _STRONGEST.items()
    }
    later = Random(str(faults))  # the other draws of a seed are as they were before it
    lost = later.random() * _MEMBERS_LOST if later.random() < 0.5 else 0.0
    filtered = later.random() < 0.4
    nodes = rng.choice((1, 2, 2, 3, 3, 4))
    return Options(
        faults=Faults(**faults, members_lost=lost),
        nodes=nodes,
        nodes_max=nodes + rng.choice((0, 1, 2)),
        brokers=rng.choice((1, 2, 3, 3)),
        partitions=rng.choice((1, 2, 4)),
        consumers=rng.choice((1, 2, 3)),
        records=rng.choice((20, 60, 120)),
        keys=rng.choice((1, 3, 10, 40)),
        null_keys=rng.choice((0.0, 0.0, 0.1)),
        heartbeat_ms=rng.choice((500, 1_000, 2_000)),
        lock_ms=rng.choice((5_000, 30_000, 30_000)),
        grace_ms=rng.choice((3_000, 3_000, 6_000)),
        skew_ms_max=rng.choice((0, 50, 400)),
        commit_ms=rng.choice((500, 5_000)),
        calm_after_ms=rng.choice((5_000, 15_000, 30_000)),
        filtered=filtered,
    )
