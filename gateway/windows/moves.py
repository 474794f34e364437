"""Windows that move to another node, because it owns the virtual broker of their leader."""

from __future__ import annotations

import structlog

from gateway.core.routing.ownership import Standing
from gateway.windows.window import Window
from gateway.windows.windows import Windows

log = structlog.get_logger("keyway.windows")


async def let_go(windows: Windows, brokers: frozenset[int]) -> None:
    """Persists and drops the windows of these leaders: another node is to open them. Records in
    flight stay leased to their members.
    """

    def leaving() -> list[Window]:
        return [window for window in windows.table.all() if window.leader in brokers]

    for window in leaving():
        window.perform(window.life.stop_reads())
    if any(not window.section.reliable for window in leaving()):
        await windows.committer.commit()  # their positions are in Kafka only
    while any(window.life.busy for window in leaving()) and await windows.persister.persist():
        pass
    for window in leaving():
        windows.table.drop(window.key)


def drop_elsewhere(windows: Windows) -> None:
    """Drops the windows that another node has taken over, without persisting: the store would
    refuse it.
    """
    table = windows.table
    for window in table.all():
        if table.dependencies.owners.standing(window.leader) is Standing.ELSEWHERE:
            log.info("window_elsewhere", window=repr(window))
            table.drop(window.key)
