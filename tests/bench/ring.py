"""`python -m tests.bench.ring`: how evenly keys are spread over members, with and without bounded
loads. Prints a table and writes build/ring.json.

A real window reads KEYS keys of one record each; the figure is the keys of a member (greatest ÷
mean). Members are named twice: 1 to n, as in the vectors of Danube's ring, and by
RUNS sets of UUIDs, as stock clients name themselves, of which the median and the worst are shown.
"arcs" is the greatest share of the circle ÷ 1/n, as an endless number of keys would show it.
"elsewhere" is the share of keys that their owner on the ring has no room for, "moved" the share
that changes its owner when one more member joins (1 ÷ (n + 1) of them must).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from uuid import UUID

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import Member, MemberId, MembersChanged, Policy, RecordsRead
from dispatcher.core.routing.ring import Router
from dispatcher.core.steps import Snapshot

MEMBERS = (10, 20, 50)
FACTORS = (None, 1.25, 1.1)
KEYS = 10_000
RUNS = 5
WRITTEN = Path("build/ring.json")


@dataclass(frozen=True, slots=True)
class Spread:
    owners: list[str]  # of each key
    greatest: float  # ÷ the mean
    seconds: float  # to read and place all keys


@dataclass(frozen=True, slots=True)
class Row:
    members: int
    bounded_load: float | None
    numbered: float
    named: float  # the median of RUNS
    worst: float
    arcs: float
    elsewhere: float
    moved: float
    microseconds_per_key: float


def spread(names: list[str], factor: float | None) -> Spread:
    core = Dispatcher(Policy(span_max=2 * KEYS, bounded_load=factor), Snapshot(cursor=0))
    core.handle(MembersChanged(tuple(Member(MemberId(name)) for name in names), 0))
    keys: list[bytes | None] = [b"key-%d" % number for number in range(KEYS)]
    event = RecordsRead(0, KEYS, list(range(KEYS)), keys, 0)
    before = perf_counter()
    core.handle(event)
    seconds = perf_counter() - before
    owners = [""] * KEYS
    for member in core._state.members:
        for offset in member.sort_ready()[member.ready_at :]:
            owners[offset] = str(member.member_id)
    counts = [owners.count(name) for name in names]
    assert sum(counts) == KEYS, "every key has a member"
    return Spread(owners, max(counts) * len(names) / KEYS, seconds)


def arcs(names: list[str]) -> float:
    ring = Router(tuple(Member(MemberId(name)) for name in names)).ring
    owned = [0] * len(names)
    hashes = ring.hashes
    for at, point in enumerate(hashes):
        owned[ring.owners[at]] += (point - hashes[at - 1]) % 2**32
    return max(owned) * len(names) / 2**32


def row(members: int, factor: float | None) -> Row:
    numbers = [str(number) for number in range(1, members + 1)]
    rng = Random(members)
    named = [[str(UUID(int=rng.getrandbits(128))) for _ in range(members + 1)] for _ in range(RUNS)]
    spreads = [spread(names[:members], factor) for names in named]
    on_ring = [spread(names[:members], None) for names in named]
    joined = [spread(names, factor) for names in named]
    return Row(
        members=members,
        bounded_load=factor,
        numbered=spread(numbers, factor).greatest,
        named=median(found.greatest for found in spreads),
        worst=max(found.greatest for found in spreads),
        arcs=arcs(numbers),
        elsewhere=median(map(_differing, spreads, on_ring)),
        moved=median(map(_differing, spreads, joined)),
        microseconds_per_key=median(found.seconds for found in spreads) * 1e6 / KEYS,
    )


def _differing(one: Spread, other: Spread) -> float:
    return sum(a != b for a, b in zip(one.owners, other.owners, strict=True)) / KEYS


def main() -> None:
    print(f"{KEYS:,} keys, 100 points a member; greatest number of keys ÷ mean")  # noqa: T201
    print("members  bound   1..n   uuids  worst   arcs  elsewhere  moved  us/key")  # noqa: T201
    rows = [row(members, factor) for members in MEMBERS for factor in FACTORS]
    for found in rows:
        bound = "off" if found.bounded_load is None else f"{found.bounded_load:.2f}"
        print(  # noqa: T201
            f"{found.members:7}  {bound:>5}  {found.numbered:.3f}  {found.named:.3f}"
            f"  {found.worst:.3f}  {found.arcs:.3f}  {found.elsewhere:9.1%}  {found.moved:5.1%}"
            f"  {found.microseconds_per_key:6.2f}"
        )
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(
        json.dumps([asdict(result) for result in rows], indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
