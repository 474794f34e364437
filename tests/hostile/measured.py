"""The cost of an attack to the node and its other clients, and the verdict of the bars.

No bar holds for want of evidence: an attack that failed, a probe or a victim without answers and a
machine that is busy itself are broken bars, too.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.freezes import Span, undisturbed
from tests.bench.rows import percentile

STALL_MS_MAX = 100.0
STALL_AT_A_LIMIT_MS_MAX = 250.0  # a single legal record or batch as large as it may be
RSS_MIB_MAX = 512.0
P99_RATIO_MAX = 10.0  # of the victim, over its own p99 before the attack
REST_S_MAX = 30.0  # until everything is as before
# Of the 100 records and the 100 questions in a second, so many have to be answered to be judged.
ANSWERED_SHARE_MIN = 0.5
JUDGED_MIN = 50  # answers that did not come around a freeze of the machine
REST_P99_MS_MAX = 50.0  # a machine on which a victim at rest waits longer is busy with other things
PER_S = 100

UP = "up"
NO_ANSWER = "no answer"

Stamped = tuple[Sequence[int], Sequence[int]]  # when, and how long: ns


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars of one attack, where they are not those of all."""

    stall_ms_max: float = STALL_MS_MAX
    p99_ratio_max: float = P99_RATIO_MAX
    # False: the attack takes away the node or the broker that all clients need, so the latency of
    # its clients is judged afterwards only.
    serving: bool = True
    # The answers of `/health` besides "up"; one of them has to come while the attack lasts.
    health: frozenset[str] = frozenset()
    rest_health: str = UP  # its answer afterwards: not all damage goes with the attacker
    ends: int = 0  # planned ends of the node
    refusals: tuple[str, ...] = ()  # samples of /metrics that have to grow
    warnings_max: int | None = None  # lines of the log


@dataclass(frozen=True, slots=True)
class Latency:
    """Of answers within a span, in ms. `judged` of them did not come around a freeze of the
    machine; the other figures are theirs.
    """

    count: int = 0
    judged: int = 0
    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """`during` lasts until the attack ends; the stall is that until all is at rest again."""

    attack: str
    did: str
    failed: bool  # the attack itself: it did not do its deeds, or the node answered wrongly
    seconds: float  # of the attack
    stall: Latency
    rest_stall: Latency  # before the attack: the machine's own
    broker: Latency  # of the same probe without the node in front of it
    victim: Latency
    rest_victim: Latency
    direct: Latency  # the same victim in Kafka's own share group, at the broker itself
    rest_direct: Latency
    rss_mib: float
    rest_rss_mib: float
    evicted: int
    ends: int  # of the node
    warnings: int  # lines of the node's log, errors included
    health: dict[str, int]  # the answers of `/health` while it lasted
    refused: dict[str, float]  # samples of /metrics that the bars name: their growth
    at_rest_again_s: float
    unrest: list[str]  # the last reasons against "at rest"; empty: it is

    def broken(self, bars: Bars) -> list[str]:
        """The bars that do not hold."""
        found = [f"the attack: {self.did}"] if self.failed else []
        if bars.serving:
            found += self._latency(bars)
        if self.rss_mib > RSS_MIB_MAX:
            found.append(f"RSS {self.rss_mib:.0f} MiB > {RSS_MIB_MAX:.0f}")
        if bars.warnings_max is not None and self.warnings > bars.warnings_max:
            found.append(f"{self.warnings} warnings > {bars.warnings_max}")
        if self.evicted:
            found.append(f"{self.evicted} healthy members evicted")
        if self.ends != bars.ends:
            found.append(f"the node ended {self.ends} times, not {bars.ends}")
        found += [f"{name} has not grown" for name, by in self.refused.items() if by <= 0]
        found += self._health(bars)
        if self.unrest:
            found.append(f"not at rest {self.at_rest_again_s:.0f} s after it: {self.unrest[0]}")
        return found

    def _latency(self, bars: Bars) -> list[str]:
        found = []
        rest = (self.rest_stall.longest, self.rest_victim.p99)
        if rest[0] > STALL_MS_MAX / 2 or rest[1] > REST_P99_MS_MAX:
            found.append(f"the machine is not quiet: {rest[0]:.0f}, {rest[1]:.0f} ms at rest")
        # Nobody is answered sooner than the broker answers, with a node or without one.
        own_ms = self.stall.longest - self.broker.longest
        if own_ms > bars.stall_ms_max:
            found.append(f"stall {own_ms:.0f} ms > {bars.stall_ms_max:.0f}")
        theirs_ms = max(0.0, self.direct.p99 - self.rest_direct.p99)
        ratio = (self.victim.p99 - theirs_ms) / self.rest_victim.p99
        if ratio > bars.p99_ratio_max:
            found.append(f"p99 {ratio:.1f} x at rest > {bars.p99_ratio_max:g}")
        enough = ANSWERED_SHARE_MIN * PER_S * self.seconds
        if self.victim.count < enough:
            found.append(f"the victim got {self.victim.count} records, not {enough:.0f}")
        if not self.stall.count:
            found.append("the probe has no answer")
        elif min(self.stall.judged, self.victim.judged) < JUDGED_MIN:
            found.append("the machine stood still: too little to judge")
        return found

    def _health(self, bars: Bars) -> list[str]:
        wrong = set(self.health) - bars.health - {UP}
        found = [f"/health: {said}" for said in sorted(wrong)]
        if not self.health:
            found.append("/health was not asked")
        if bars.health and not bars.health & set(self.health):
            found.append(f"/health never said {' or '.join(sorted(bars.health))}")
        return found


def pairs(file: Path) -> Stamped:
    """The whole pairs of a file that is still being written."""
    data = file.read_bytes() if file.exists() else b""
    columns = array("q", data[: len(data) // 16 * 16])
    return columns[0::2], columns[1::2]


def latency(stamped: Stamped, span: Span, frozen: list[Span]) -> Latency:
    """Of requests under way inside the span, while the machine ran."""
    inside = [
        (at, took)
        for at, took in zip(*stamped, strict=True)
        if at <= span[1] and at + took >= span[0]
    ]
    if not inside:
        return Latency()
    kept = sorted(undisturbed([at for at, _ in inside], [took for _, took in inside], frozen))
    if not kept:
        return Latency(len(inside), 0)
    p50, p99 = percentile(kept, 50.0), percentile(kept, 99.0)
    return Latency(len(inside), len(kept), p50 / 1e6, p99 / 1e6, kept[-1] / 1e6)
