"""The overview of all nodes: that of this one, and with the viewer's own token those of the others.

One question goes round for all viewers with the same token, at most every OVERVIEW_S. Large answers
are put together in a thread. A node that does not answer is named, and the rest is shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from pydantic import ValidationError

from gateway.admin.dashboard.overview import Overviews
from gateway.admin.dashboard.rows import Overview
from gateway.admin.limits import (
    OVERVIEW_GROUPS_MAX,
    OVERVIEW_PEER_S_MAX,
    OVERVIEW_S,
    REASON_CHARS_MAX,
    VIEWERS_MAX,
)
from gateway.admin.peers import Peers, Question, Reply
from gateway.admin.tokens import Caller, Token
from gateway.core import nodes_at_a_glance

_PATH = "/v1/overview"


@dataclass(slots=True)
class _Glance:
    text: bytes = b""
    due_s: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class OverviewsOfNodes:
    """`peers` None: the node stands alone."""

    overviews: Overviews
    peers: Peers | None
    _of: dict[tuple[str | None, bytes], _Glance] = field(default_factory=dict)  # by token

    async def text(self, caller: Caller, token: Token | None, *, alone: bool = False) -> bytes:
        """An Overview as JSON, with all that the caller may see. `alone`: of this node only."""
        if alone or self.peers is None or not self.peers.others():
            return (await self.overviews.latest()).text(caller)
        key = (caller.name, b"" if token is None else token.sha256)
        glance = self._of.setdefault(key, _Glance())
        while len(self._of) > VIEWERS_MAX:
            del self._of[next(iter(self._of))]
        async with glance.asking:
            if monotonic() >= glance.due_s:
                glance.text = await self._asked(self.peers, caller, token)
                glance.due_s = monotonic() + OVERVIEW_S / 2
            return glance.text

    async def _asked(self, peers: Peers, caller: Caller, token: Token | None) -> bytes:
        question = Question("GET", _PATH, token=token, seconds_max=OVERVIEW_PEER_S_MAX)
        replies, own = await asyncio.gather(peers.ask_all(question), self.overviews.latest())
        name = peers.owners.node_id
        return await asyncio.to_thread(_together, name, own.text(caller), replies)


def _together(node: str, own: bytes, replies: Sequence[Reply]) -> bytes:
    answers: dict[str, dict[str, object]] = {node: json.loads(own)}
    unanswered: list[Mapping[str, str]] = []
    for reply in replies:
        reason = reply.title or str(reply.status)
        if 200 <= reply.status < 300:
            try:
                Overview.model_validate(reply.answer)
                answers[reply.node] = reply.answer
                continue
            except ValidationError as error:
                reason = f"its answer has another form: {error.errors()[0]['loc']}"
        unanswered.append({"node": reply.node, "reason": reason[:REASON_CHARS_MAX]})
    merged = nodes_at_a_glance.overview(answers, unanswered, OVERVIEW_GROUPS_MAX)
    return json.dumps(merged, separators=(",", ":")).encode()
