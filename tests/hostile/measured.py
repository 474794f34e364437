"""The cost of an attack to the node and its other clients, and the verdict of the bars."""

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
WARNINGS_MAX = 20  # lines, of an attack through one group
REST_S_MAX = 30.0  # until everything is as before

Stamped = tuple[Sequence[int], Sequence[int]]  # when, and how long: ns


@dataclass(frozen=True, slots=True)
class Measured:
    attack: str
    did: str
    stall_ms: float
    rest_stall_ms: float  # the probe's longest before the attack: the machine's own
    rss_mib: float
    p50_ms: float
    p99_ms: float
    rest_p99_ms: float
    evicted: int
    warnings: int  # lines of the node's log, errors included
    health: str  # the answers of `/health` while it lasted
    at_rest_again_s: float

    def broken(self, *, at_a_limit: bool, writes_little: bool = False) -> list[str]:
        """The bars that do not hold."""
        stall_max = STALL_AT_A_LIMIT_MS_MAX if at_a_limit else STALL_MS_MAX
        found = []
        if self.stall_ms > max(stall_max, 2 * self.rest_stall_ms):
            found.append(f"stall {self.stall_ms:.0f} ms > {stall_max:.0f}")
        if self.rss_mib > RSS_MIB_MAX:
            found.append(f"RSS {self.rss_mib:.0f} MiB > {RSS_MIB_MAX:.0f}")
        if self.p99_ms > P99_RATIO_MAX * self.rest_p99_ms:
            found.append(
                f"p99 {self.p99_ms / self.rest_p99_ms:.1f} x at rest > {P99_RATIO_MAX:.0f}"
            )
        if writes_little and self.warnings > WARNINGS_MAX:
            found.append(f"{self.warnings} warnings > {WARNINGS_MAX}")
        if self.evicted:
            found.append(f"{self.evicted} healthy members evicted")
        if self.at_rest_again_s > REST_S_MAX:
            found.append(f"not at rest {REST_S_MAX:.0f} s after it")
        return found


def pairs(file: Path, *, interleaved: bool) -> Stamped:
    columns = array("q", file.read_bytes())
    if interleaved:
        return columns[0::2], columns[1::2]
    half = len(columns) // 2
    return columns[:half], columns[half:]


def within(stamped: Stamped, span: Span) -> Stamped:
    """Those that began inside the span."""
    kept = [(at, took) for at, took in zip(*stamped, strict=True) if span[0] <= at <= span[1]]
    return [at for at, _ in kept], [took for _, took in kept]


def figures(stamped: Stamped, span: Span, frozen: list[Span]) -> tuple[float, float, float]:
    """p50, p99 and the longest, in ms, of requests that began inside the span while the machine
    ran. 0 without any.
    """
    inside = within(stamped, span)
    kept = sorted(undisturbed(inside[0], inside[1], frozen))
    if not kept:
        return 0.0, 0.0, 0.0
    return percentile(kept, 50.0) / 1e6, percentile(kept, 99.0) / 1e6, kept[-1] / 1e6
