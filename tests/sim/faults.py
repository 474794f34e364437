"""The faults of one run, drawn from its seed: swarm testing, each fault is off in half of
the runs, and each way of using the dispatcher in some.

Probabilities are per occasion (per persist, per delivered record, per second and member …).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

from dispatcher.core.model import EvictPolicy, JoinPolicy, PoisonPolicy, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    crash: float = 0.0  # per second: between two persists
    crash_before_persist: float = 0.0  # per persist
    crash_after_persist: float = 0.0
    store_error: float = 0.0  # per persist; nothing applied
    store_error_applied: float = 0.0  # the answer was lost, the write was not
    store_late: float = 0.0  # an error, and the write arrives later: before the next claim or after
    store_down: float = 0.0  # per second; for 0.1 to 3 seconds
    store_flush: float = 0.0  # per second
    store_set_back: float = 0.0  # per second: it comes back as it was some seconds before
    truncate: float = 0.0  # per second
    elect: float = 0.0  # per second: the log has another leader, which may lack its last records
    compact: float = 0.0  # per second: takes a record away
    recreate: float = 0.0  # per second: the topic is deleted and created again
    grow: float = 0.0  # per second: a partition is added
    stale_read: float = 0.0  # per read: an earlier one is answered once more
    leave: float = 0.0  # per consumer and second
    die: float = 0.0  # silently
    disconnect: float = 0.0  # the connection breaks, the consumer comes back with another session
    close_session: float = 0.0
    hang: float = 0.0  # it asks for nothing for a while, and acknowledges nothing; it stays there
    refilter: float = 0.0  # the rules that give the consumer its key filters change
    retune: float = 0.0  # per second: the group's settings change
    stall: float = 0.0  # per delivery: acknowledged after the lock is gone, or never
    release: float = 0.0  # per record
    reject: float = 0.0
    gap: float = 0.0
    renew: float = 0.0
    forget: float = 0.0  # never acknowledged
    not_sent: float = 0.0  # per delivery: the records' bytes cannot be read
    foreign_ack: float = 0.0  # per delivery: acknowledges records that it does not hold
    dead_letter_failure: float = 0.0  # per write
    operator: float = 0.0  # per second
    fail_over: float = 0.0  # per second: Kafka is away, and the group goes on on another cluster
    hold: float = 0.0  # per window and second: records wait for another window, or do no more


_STRONGEST = {
    "crash": 0.1,
    "crash_before_persist": 0.03,
    "crash_after_persist": 0.03,
    "store_error": 0.03,
    "store_error_applied": 0.02,
    "store_late": 0.02,
    "store_down": 0.1,
    "store_flush": 0.1,
    "store_set_back": 0.2,
    "truncate": 0.1,
    "elect": 0.3,
    "compact": 0.3,
    "recreate": 0.05,
    "grow": 0.1,
    "stale_read": 0.3,
    "leave": 0.15,
    "die": 0.1,
    "disconnect": 0.2,
    "close_session": 0.2,
    "hang": 0.15,
    "refilter": 0.1,
    "retune": 0.3,
    "stall": 0.1,
    "release": 0.15,
    "reject": 0.05,
    "gap": 0.03,
    "renew": 0.1,
    "forget": 0.03,
    "not_sent": 0.1,
    "foreign_ack": 0.2,
    "dead_letter_failure": 0.5,
    "operator": 1.0,
    "fail_over": 0.2,
    "hold": 0.3,
}

PARTITIONS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    policy: Policy
    faults: Faults
    partitions: int
    consumers: int
    records: int
    keys: int
    null_keys: float
    holes: float
    hot: float  # share of records that have the one hot key
    filtered: float  # share of consumers with a key filter
    fetch_max: int  # records at once, as far as a consumer asks for that many
    calm_after_ms: int
    persist_ms_max: int
    commit_every_ms: int
    idle_ms_max: int  # without members; then a window leaves memory
    recount_every: int  # events of a window from one recount of its core to the next


def draw(rng: Random) -> Options:
    assert set(_STRONGEST) == {field.name for field in fields(Faults)}
    faults = {
        name: round(rng.random() * strongest, 4) if rng.random() < 0.5 else 0.0
        for name, strongest in _STRONGEST.items()
    }
    policy = Policy(
        reliable=rng.random() < 0.85,
        join_policy=rng.choice((JoinPolicy.PER_KEY, JoinPolicy.PER_KEY, JoinPolicy.LAST_SENT)),
        window_records=rng.choice((None, None, 3, 20)),
        bounded_load=rng.choice((None, None, 1.0, 1.25)),
        span_max=rng.choice((1, 4, 16, 64, 64, 128)),
        held_max=rng.choice((0, 3, 20, 1_000_000, 1_000_000)),
        in_flight_per_member_max=rng.choice((1, 3, 10, 1_000)),
        prefetch_per_key=rng.choice((1, 1, 1, 1, 2, 4)),
        on_evict=rng.choice((EvictPolicy.REDELIVER, EvictPolicy.REDELIVER, EvictPolicy.ACK)),
    )
    return Options(
        policy=retuned(policy, rng),
        faults=Faults(**faults),
        partitions=rng.choice((1, 1, 1, 2, 3)),
        consumers=rng.choice((1, 2, 3, 5)),
        records=rng.choice((20, 60, 120, 200)),
        keys=rng.choice((1, 3, 10, 40)),
        null_keys=rng.choice((0.0, 0.0, 0.1)),
        holes=rng.choice((0.0, 0.0, 0.1, 0.6)),
        hot=rng.choice((0.0, 0.0, 0.5)),
        filtered=rng.choice((0.0, 0.0, 0.0, 0.4)),
        fetch_max=rng.choice((1, 5, 50, 50)),
        calm_after_ms=rng.choice((3_000, 10_000, 20_000)),
        persist_ms_max=rng.choice((0, 1, 20)),
        commit_every_ms=rng.choice((300, 2_000, 5_000)),
        recount_every=rng.choice((1, 10, 50)),
        idle_ms_max=rng.choice((500, 500, 2_000)),
    )


def retuned(policy: Policy, rng: Random) -> Policy:
    """With other values of all that may change while a window is up."""
    return replace(
        policy,
        in_flight_per_member_max=rng.choice((1, 3, 10, 1_000)),
        lock_duration_ms=rng.choice((1_500, 5_000, 30_000)),
        deliveries_max=rng.choice((1, 2, 5, 10)),
        backoff_base_ms=rng.choice((10, 200, 1_000)),
        backoff_max_ms=rng.choice((1_000, 5_000)),
        disconnect_grace_ms=rng.choice((500, 3_000)),
        rejected=rng.choice(tuple(PoisonPolicy)),
        exhausted=rng.choice(tuple(PoisonPolicy)),
    )
