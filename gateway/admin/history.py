"""REST of the last 15 minutes of a group: `GET /v1/history?group=`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.limits import HISTORY_TOPICS_SHOWN
from gateway.admin.problems import answered, query
from gateway.admin.window_rows import HistoryList, HistoryRow
from gateway.core.history import History
from gateway.operations.group_histories import WHOLE, GroupHistories
from gateway.operations.group_offsets import GroupOffsets


def history_routes(offsets: GroupOffsets, histories: GroupHistories) -> list[Route]:
    async def show_history(request: Request) -> Response:
        group = query(request, "group")
        await offsets.require(group)
        known = histories.topics(group)
        whole = known.pop(WHOLE, History())
        shown = sorted(known)[:HISTORY_TOPICS_SHOWN]
        return answered(
            HistoryList(
                group=group,
                whole=_row(None, whole),
                topics=[_row(topic, known[topic]) for topic in shown],
                topics_hidden=len(known) - len(shown),
            )
        )

    return [Route("/v1/history", show_history, methods=["GET"])]


def _row(topic: str | None, history: History) -> HistoryRow:
    points = list(history.points())
    flows = [[None if rate is None else round(rate, 3) for rate in point.flow] for point in points]
    return HistoryRow(
        topic=topic,
        at_ms=[point.at_ms for point in points],
        lag=[point.lag for point in points],
        produced=[flow[0] for flow in flows],
        delivered=[flow[1] for flow in flows],
        settled=[flow[2] for flow in flows],
    )
