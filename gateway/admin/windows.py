"""REST of windows: `GET /v1/windows?group=`, a picture of each.

A picture costs O(span), a millisecond or two: a page gives way to other work after each.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.core.reports.picture import OffsetState
from gateway.admin.limits import PAGE_WINDOWS_MAX, RUNS_MAX
from gateway.admin.pages import limit_of, number, one_of, page_of, place_after, place_text
from gateway.admin.problems import answered, query
from gateway.admin.rows import HeldRow
from gateway.admin.window_rows import RunRow, StateName, WindowList, WindowRow
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lag, Lags
from gateway.windows.parked_counts import ParkedCounts
from gateway.windows.window import Window
from gateway.windows.window_keys import window_key

Partition = tuple[str, int]  # topic, partition
PartitionState = Literal["idle", "loading", "up"]

_STATES: Final[Mapping[int, StateName]] = {
    OffsetState.SETTLED: "settled",
    OffsetState.READY: "ready",
    OffsetState.IN_FLIGHT: "in_flight",
    OffsetState.BACKING_OFF: "backing_off",
    OffsetState.DEAD_LETTERING: "dead_lettering",
    OffsetState.PARKED: "parked",
}


@dataclass(frozen=True, slots=True)
class GroupPartitions:
    """The partitions of a group, as far as the node knows them without asking anybody."""

    windows: Mapping[Partition, Window]
    lags: Mapping[Partition, Lag]

    def state(self, place: Partition) -> PartitionState:
        window = self.windows.get(place)
        if window is None:
            return "idle"
        return "loading" if window.dispatcher is None else "up"


def partitions_of(group: str, offsets: GroupOffsets, lags: Lags) -> GroupPartitions:
    return GroupPartitions(
        {
            (window.partition.topic, window.partition.partition): window
            for window in offsets.windows.of_group(group)
        },
        {(lag.tp.topic, lag.tp.partition): lag for lag in lags.of_group(group)},
    )


def window_routes(offsets: GroupOffsets, lags: Lags) -> list[Route]:
    async def list_windows(request: Request) -> Response:
        group = query(request, "group")
        limit = limit_of(request, PAGE_WINDOWS_MAX)
        runs_max = number(request, "runs", 1, RUNS_MAX, default=RUNS_MAX)
        topic = request.query_params.get("topic")
        state = one_of(request, "state", get_args(PartitionState))
        partition = number(request, "partition", 0, 2**31 - 1, default=-1)
        after = place_after(request)
        await offsets.require(group)
        places = partitions_of(group, offsets, lags)

        def kept(place: Partition) -> bool:
            return (
                topic in (None, place[0])
                and partition in (-1, place[1])
                and state in (None, places.state(place))
            )

        known = sorted(places.windows.keys() | places.lags.keys())
        page, more = await page_of(known, bisect_right(known, after), limit, kept)
        rows = []
        for place in page:
            rows.append(_row(place, places, offsets.windows.parked, runs_max))
            await asyncio.sleep(0)
        following = place_text(*page[-1]) if more else None
        return answered(WindowList(group=group, windows=rows, next=following))

    return [Route("/v1/windows", list_windows, methods=["GET"])]


def _row(
    place: Partition, places: GroupPartitions, parked: ParkedCounts, runs_max: int
) -> WindowRow:
    window, lag = places.windows.get(place), places.lags.get(place)
    core = None if window is None else window.dispatcher
    row = WindowRow(topic=place[0], partition=place[1], state="idle")
    if lag is not None:
        row = row.model_copy(
            update={
                "parked": parked.of(window_key(lag.group, lag.tp), window),
                "cursor": lag.cursor,
                "log_end": lag.end_seen(None if core is None else core.read_position),
                "lag": lag.records,
                "lag_seconds": lag.seconds,
                **HeldRow.fields(lag.held),
            }
        )
    if window is None:
        return row
    leader = None if window.leader < 0 else window.leader
    changes: dict[str, Any] = {
        "leader": leader,
        "trouble": window.trouble or None,
        "state": "loading",
    }
    if core is not None:
        picture, unreadable = core.picture(runs_max), window.unreadable
        changes |= {
            "state": "up",
            "cursor": core.cursor,
            "read_position": core.read_position,
            "span_max": window.section.span_max,
            "resolution": picture.resolution,
            "runs": tuple(
                RunRow(state=_STATES[run.state], first=run.first, last=run.last)
                for run in picture.runs
            ),
            "read_trouble": None if unreadable is None else unreadable.reason,
        }
        changes.update((_STATES[state], picture.counts[state]) for state in OffsetState)
    return row.model_copy(update=changes)
