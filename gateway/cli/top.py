"""`keyway top`: the groups of all nodes as one, live. `q` ends it, `s` sorts by another column.

Rates are those between two looks. Without a terminal it prints one table and ends.
"""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.admin.dashboard.rows import GroupLine, Overview, TrafficRow
from gateway.cli.node_client import ask
from gateway.cli.options import DEFAULT_ADMIN, AdminOption
from gateway.cli.tables import age, counted, plain, table_of
from keyway.terminal.watching import WATCH_S, WATCH_S_MIN

_COLUMNS = (
    *("GROUP", "STATE", "MEMBERS", "WINDOWS", "LAG", "LAG-SECONDS", "PRODUCED/S", "ACCEPTED/S"),
    *("CATCHES-UP", "REDELIVERED/S", "IN-FLIGHT", "BACKING-OFF", "PARKED", "DRAINING-KEYS"),
    "STUCK",
)
# On a narrow screen the last of these are missing: what needs an operator comes first.
_NEEDED = (
    *("GROUP", "LAG", "PARKED", "STUCK", "IN-FLIGHT", "STATE", "LAG-SECONDS", "ACCEPTED/S"),
    *("MEMBERS", "CATCHES-UP", "PRODUCED/S", "REDELIVERED/S", "BACKING-OFF", "WINDOWS"),
    "DRAINING-KEYS",
)
_NAME_CHARS_MIN = 20
_BETWEEN = 2  # columns of the screen between two of the table
_WAITING = ("share_fetch", "fetch")
_TIMED = ("produce", "share_fetch", "share_acknowledge")
Counts = dict[str, list[int]]  # by API and time
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB")


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, since the look before."""

    requests: float
    bytes_in: float
    bytes_out: float
    outcomes: dict[tuple[str, str], float]  # records by group and outcome
    times: str  # of requests


def rates(before: Overview | None, now: Overview) -> Rates | None:
    """None: there was no look before, or the node has started again since, or these are others."""
    if before is None or now.at_ms <= before.at_ms or now.nodes != before.nodes:
        return None
    then_traffic, traffic = before.traffic or TrafficRow(), now.traffic or TrafficRow()
    if traffic.connections_opened < then_traffic.connections_opened:
        return None
    seconds = (now.at_ms - before.at_ms) / 1_000
    old = {line.group: line.outcomes for line in before.groups}
    return Rates(
        (sum(traffic.requests.values()) - sum(then_traffic.requests.values())) / seconds,
        (traffic.bytes_from_clients - then_traffic.bytes_from_clients) / seconds,
        (traffic.bytes_to_clients - then_traffic.bytes_to_clients) / seconds,
        {
            (line.group, name): max(0, count - old.get(line.group, {}).get(name, 0)) / seconds
            for line in now.groups
            for name, count in line.outcomes.items()
        },
        _times(then_traffic, traffic),
    )


def _times(before: TrafficRow, now: TrafficRow) -> str:
    """The work of requests since the look before, and apart from it their waits for records."""

    def within(share: float, api: str, then: Counts, at: Counts) -> str | None:
        old = then.get(api, [])
        counts = [
            count - (old[i] if i < len(old) else 0) for i, count in enumerate(at.get(api, []))
        ]
        bound = quantile_bound(counts, now.bounds_ms, share)
        return None if bound is None else f"{api} {bound}"

    work = [within(0.99, api, before.answered, now.answered) for api in _TIMED]
    waits = [within(0.5, api, before.waited, now.waited) for api in _WAITING]
    said = [
        f"{name}: {', '.join(known)}"
        for name, found in (("work p99", work), ("wait p50", waits))
        if (known := [quantile for quantile in found if quantile is not None])
    ]
    return "  ".join(said)


def quantile_bound(counts: Sequence[int], bounds_ms: Sequence[float], share: float) -> str | None:
    """The bound that the given share of answers is within, like `< 10 ms`. None: there are none."""
    wanted, passed = sum(counts) * share, 0
    for at, count in enumerate(counts):
        passed += count
        if count > 0 and passed >= wanted:
            beyond = at >= len(bounds_ms)
            return f"> {bounds_ms[-1]:g} ms" if beyond else f"< {bounds_ms[at]:g} ms"
    return None


def _accepted(line: GroupLine, speed: Rates | None) -> float:
    return 0.0 if speed is None else speed.outcomes.get((line.group, "accepted"), 0.0)


# The largest first; of equals by name.
SORTS: dict[str, Callable[[GroupLine, Rates | None], float]] = {
    "lag": lambda line, _: line.lag or 0,
    "lag_seconds": lambda line, _: line.lag_seconds or 0,
    "accepted": _accepted,
    "parked": lambda line, _: (line.parked or 0) + line.stuck + line.held,
}


def frame(
    now: Overview, speed: Rates | None, sort: str, rows_max: int | None, width: int | None = None
) -> RenderableType:
    """One picture of the node. `rows_max` and `width`: the room for groups and columns."""
    lines = sorted(now.groups, key=lambda line: (-SORTS[sort](line, speed), line.group))
    shown = lines if rows_max is None else lines[:rows_max]
    rows = [dict(zip(_COLUMNS, _row(line, speed), strict=True)) for line in shown]
    names = _that_fit(rows, width)
    table = table_of(names, [[row[name] for name in names] for row in rows])
    more = len(lines) - len(shown) + now.groups_hidden
    foot = [Text(f"{more} more groups")] if more else []
    return Group(*_head(now, speed, sort), _cut_at_the_right(table), *foot)


def _that_fit(rows: Sequence[Mapping[str, object]], width: int | None) -> list[str]:
    """Columns that a screen of this width has room for, in their order."""
    left, chosen = sys.maxsize if width is None else width, set[str]()
    for name in _NEEDED:
        texts = [name, *("-" if row[name] is None else str(row[name]) for row in rows)]
        widest = max(map(cell_len, texts))
        left -= _BETWEEN + (min(widest, _NAME_CHARS_MIN) if name == "GROUP" else widest)
        if left < 0:
            break
        chosen.add(name)
    return [name for name in _COLUMNS if name in chosen]


def _cut_at_the_right(table: Table) -> Table:
    """Long names give way to the other columns."""
    for column in table.columns:
        widest = max(map(cell_len, map(str, (column.header, *column.cells))))
        column.min_width = min(widest, _NAME_CHARS_MIN) if column.header == "GROUP" else widest
        column.overflow = "ellipsis"
    return table


def _head(now: Overview, speed: Rates | None, sort: str) -> Iterator[Text]:
    at = time.strftime("%H:%M:%S", time.localtime(now.at_ms / 1_000))
    reasons = "; ".join([*now.health.reasons, *now.health.warnings])
    status = f"{now.health.status}{'  ' + reasons if reasons else ''}"
    yield Text(plain(f"{at}  by {sort.replace('_', ' ')}  {status}"))
    traffic = now.traffic
    if traffic is None:  # the token is for some groups: it is that of all clients
        return
    moving = "rates come with the next look"
    if speed is not None:
        moving = (
            f"{speed.requests:,.0f} requests/s  in {_bytes(speed.bytes_in)}/s"
            f"  out {_bytes(speed.bytes_out)}/s"
        )
    yield Text(f"{counted(traffic.connections, 'connection')}  {traffic.refused} refused  {moving}")
    if speed is not None and speed.times:
        yield Text(speed.times)


def _row(line: GroupLine, speed: Rates | None) -> tuple[object, ...]:
    def rate(outcome: str) -> str | None:
        known = None if speed is None else speed.outcomes.get((line.group, outcome), 0.0)
        return None if known is None else f"{known:,.1f}"

    produced = line.flow.produced
    seconds = line.catches_up_s
    return (
        *(line.group, "Stopped" if line.stopped else line.state, line.members, line.windows),
        *(line.lag, age(line.lag_seconds), None if produced is None else f"{produced:,.1f}"),
        *(
            rate("accepted"),
            "grows" if line.growing else None if seconds is None else _span(seconds),
        ),
        *(rate("redelivered"), line.in_flight, line.backing_off, line.parked),
        *(line.draining_keys, line.stuck + line.held),
    )


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"


def _bytes(count: float) -> str:
    for unit in _BYTE_UNITS[:-1]:
        if count < 1_024:
            return f"{count:.0f} {unit}"
        count /= 1_024
    return f"{count:.1f} {_BYTE_UNITS[-1]}"


def top(
    every: Annotated[
        float, typer.Option("--every", min=WATCH_S_MIN, help="Seconds between two looks.")
    ] = WATCH_S,
    admin: AdminOption = DEFAULT_ADMIN,
) -> None:
    """Show the groups of all nodes live: `q` ends it, `s` sorts by another column."""
    console = Console()
    now = _look(admin)
    if not (sys.stdin.isatty() and console.is_terminal):
        Console(width=None if console.is_terminal else 200).print(frame(now, None, "lag", None))
        return
    said = io.StringIO()  # a line on the live screen would go with it
    try:
        with (
            suppress(KeyboardInterrupt),
            redirect_stderr(said),
            _single_keys(),
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
        ):
            _watch(live, admin, every, now)
    finally:
        sys.stderr.write(said.getvalue())


def _watch(live: Live, admin: str, every_s: float, now: Overview) -> None:
    """Shows the picture until `q` or Ctrl-C."""
    sorts, speed = list(SORTS), None
    while True:
        size = live.console.size
        rows_max = max(1, size.height - 6)
        live.update(frame(now, speed, sorts[0], rows_max, size.width), refresh=True)
        pressed = _pressed_within(every_s)
        if pressed in ("q", "\x04"):
            return
        if pressed == "s":
            sorts.append(sorts.pop(0))
            continue
        following = _look(admin)
        if following.at_ms != now.at_ms:  # else it is the same picture of the node
            now, speed = following, rates(now, following)


def _look(admin: str) -> Overview:
    """A node that does not answer is named in the health of all."""
    return ask(admin, "/v1/overview", Overview, tell=False).row


@contextmanager
def _single_keys() -> Iterator[None]:
    """Keys of the terminal come one by one, without Enter, and are not shown."""
    import termios  # not everywhere
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed_within(seconds: float) -> str | None:
    """None: no key."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return None
    # Not by sys.stdin, which would keep the keys behind the first one to itself.
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"
