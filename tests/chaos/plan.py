"""The plan of a round, drawn from its seed alone: the load, the kills, and each way back."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum


class Victim(StrEnum):
    """The victim of a strike. All but FLUSH are a SIGKILL, followed by a new start."""

    GATEWAY = "gateway"
    REDIS = "redis"
    OLD_REDIS = "old-redis"  # and it comes back with the files of a while before
    FLUSH = "flush"  # FLUSHALL, and the gateway is killed and started: nothing but Kafka is left
    BROKER = "broker"
    LIBRDKAFKA = "librdkafka"  # a process with two share consumers; a new one joins
    JAVA = "java"  # the same with KafkaShareConsumers


MEMBERS = frozenset({Victim.LIBRDKAFKA, Victim.JAVA})
_WEIGHTS = {
    Victim.GATEWAY: 4,
    Victim.REDIS: 3,
    Victim.FLUSH: 3,
    Victim.BROKER: 3,
    Victim.LIBRDKAFKA: 2,
    Victim.JAVA: 2,
}
_KEYS = (120, 400)
_WORK_MS = (0, 20, 100, 300)


@dataclass(frozen=True, slots=True)
class Pace:
    """The length of a round, with any number of blows."""

    records: tuple[int, int]  # fewest and most
    trickle_s: float  # in which they come, after the burst
    commit_interval_ms: int  # of the gateway


FULL = Pace((2_500, 5_000), 4.0, 5_000)
QUICK = Pace((800, 1_600), 1.0, 1_000)


@dataclass(frozen=True, slots=True)
class Strike:
    """Everything of one strike is down at the same time."""

    at_share: float  # of the round's records delivered when it falls
    victims: tuple[Victim, ...]  # in the order in which they are killed
    apart_ms: tuple[int, ...]  # before each kill but the first
    flushed_alive: bool  # FLUSHALL comes before the gateway's kill, not after it
    down_ms: int  # from the last kill to the first start
    returns: tuple[Victim, ...]  # in the order in which they are started again
    returns_apart_ms: tuple[int, ...]  # before each start but the first
    copied_at_share: float = 0.0  # OLD_REDIS: its files are of when so many were delivered

    def __str__(self) -> str:
        return f"{'+'.join(self.victims)} at {self.at_share:.0%}"

    @property
    def members_only(self) -> bool:
        return MEMBERS.issuperset(self.victims)

    @property
    def forgets(self) -> bool:
        """Redis loses confirmed state: all of it, or the last of it."""
        return not {Victim.FLUSH, Victim.OLD_REDIS}.isdisjoint(self.victims)


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    records: int
    keys: int
    partitions: int
    work_ms_max: int  # an explicit member works up to this long on a batch before it acknowledges
    strikes: tuple[Strike, ...]
    pace: Pace = FULL

    def __str__(self) -> str:
        return ", ".join(str(strike) for strike in self.strikes)


def plan_of(seed: int, pace: Pace = FULL) -> Plan:
    """The same plan for the same seed, on every machine."""
    dice = random.Random(seed)
    shares = [dice.uniform(0.1, 0.8)]
    if dice.random() < 0.4:
        shares = sorted((dice.uniform(0.1, 0.4), dice.uniform(0.5, 0.85)))
    plan = Plan(
        seed,
        dice.randint(*pace.records),
        dice.randint(*_KEYS),
        dice.randint(1, 4),
        dice.choice(_WORK_MS),
        tuple(_strike(dice, share) for share in shares),
        pace,
    )
    # Thrown last, so that the seeds of before still mean the same.
    return replace(plan, strikes=tuple(_aged(dice, strike) for strike in plan.strikes))


def _aged(dice: random.Random, strike: Strike) -> Strike:
    """Half of the Redis that are killed come back with older files."""
    old, age = dice.random() < 0.5, dice.uniform(0.3, 0.95)
    if not old or Victim.REDIS not in strike.victims:
        return strike

    def aged(victims: tuple[Victim, ...]) -> tuple[Victim, ...]:
        return tuple(Victim.OLD_REDIS if victim is Victim.REDIS else victim for victim in victims)

    return replace(
        strike,
        victims=aged(strike.victims),
        returns=aged(strike.returns),
        copied_at_share=strike.at_share * age,
    )


def _strike(dice: random.Random, share: float) -> Strike:
    count = dice.choices((1, 2, 3), (55, 30, 15))[0]
    victims: list[Victim] = []
    while len(victims) < count:
        drawn = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if drawn not in victims and not {drawn, *victims} >= {Victim.GATEWAY, Victim.FLUSH}:
            victims.append(drawn)
    # A Redis that is down cannot be flushed.
    victims.sort(key=lambda victim: victim is not Victim.FLUSH)
    returns = list(victims)
    dice.shuffle(returns)
    return Strike(
        share,
        tuple(victims),
        tuple(dice.choice((0, 0, 20, 150, 600)) for _ in victims[1:]),
        dice.random() < 0.5,
        dice.choice((0, 50, 300, 1_200)),
        tuple(returns),
        tuple(dice.choice((0, 100, 800)) for _ in victims[1:]),
    )
