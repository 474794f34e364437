"""Commits of a node's windows to Kafka: cursor as offset, settled records as metadata, per group.

Kafka knows no owner of a group's offsets while the group has no members. So a window looks first if
somebody else may have committed (dispatcher/core/life.py). It yields to a position that was set
meanwhile, as after a fail-over to another cluster and back: it is loaded again from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from dispatcher.core.commands import CommitState
from dispatcher.core.reconcile import overtakes
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.upstream.commits import Commit, Committed
from gateway.upstream.errors import Refused, UpstreamError
from gateway.windows.dependencies import CommittedOffsets
from gateway.windows.window import Window
from settled.core.metadata import encode as encode_commit
from settled.core.metadata import read_times

log = structlog.get_logger("keyway.windows")

States = list[tuple[Window, CommitState]]


@dataclass(slots=True)
class GroupCommits:
    """`failing`: the Kafka error of each group whose last commit was not taken."""

    commits: CommittedOffsets
    failing: dict[str, int] = field(default_factory=dict)

    async def commit(self, group: str, states: States) -> None:
        try:
            states = await self._not_overtaken(group, states)
        except UpstreamError as error:
            for window, _ in states:
                window.commit_failed()
            refused = error.error_code if isinstance(error, Refused) else None
            self._note(group, refused or ErrorCode.NETWORK_EXCEPTION)
            return
        errors = await self._write(group, states)
        for (window, state), error_code in zip(states, errors, strict=True):
            if error_code == 0:
                window.commit_taken(state)
            else:
                window.commit_failed()
        self._note(group, next((it for it in errors if it != 0), 0))

    async def _not_overtaken(self, group: str, states: States) -> States:
        """Without the windows whose position was set elsewhere: those are loaded again. Raises
        UpstreamError.
        """
        doubtful = [window.partition for window, _ in states if window.looks_first]
        if not doubtful:
            return states
        found = await self.commits.fetch_some(group, doubtful)
        own: States = []
        for window, state in states:
            committed = found.get(window.partition)
            if committed is not None and overtakes(_origin_of(committed), state.origin):
                log.warning(
                    "position_set_elsewhere",
                    window=repr(window),
                    cursor=state.cursor,
                    committed=committed.offset,
                )
                window.look_again()
            else:
                own.append((window, state))
        return own

    async def _write(self, group: str, states: States) -> list[int]:
        if not states:
            return []
        chars_max = self.commits.metadata_chars_max
        commits = [
            Commit(
                window.partition,
                state.cursor,
                encode_commit(
                    state.cursor,
                    state.settled,
                    origin=state.origin,
                    settled_ms=state.settled_ms,
                    chars_max=chars_max,
                ),
            )
            for window, state in states
        ]
        return await self.commits.commit(group, commits)

    def _note(self, group: str, error: int) -> None:
        """One line when it starts to fail, and one when it works again."""
        if error == self.failing.get(group, 0):
            return
        if error:
            self.failing[group] = error
            log.warning("commit_failed", group=group, error=error_name(error))
        else:
            del self.failing[group]
            log.info("commit_works_again", group=group)


def _origin_of(committed: Committed) -> int:
    """0: not one of a Key-Shared group."""
    return read_times(committed.offset, committed.metadata).origin
