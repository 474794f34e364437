"""The log lines about the life of a window."""

from __future__ import annotations

from typing import assert_never

import structlog

from dispatcher.core.life.commands import RetentionPassed, TailLost, TroubleBegan, TroubleOver
from dispatcher.core.steps import Snapshot
from gateway.group_log import GroupLog

log = structlog.get_logger("keyway.window")


def log_life(
    group_log: GroupLog,
    group: str,
    window: str,
    command: TroubleBegan | TroubleOver | RetentionPassed | TailLost,
) -> None:
    match command:
        case TroubleBegan(reason=reason):
            group_log.note(group, "window_waits", window=window, reason=reason)
        case TroubleOver(reason=reason):
            log.debug("window_recovered", window=window, after=reason)
        case RetentionPassed(cursor=cursor, log_start=log_start):
            passed = {"cursor": cursor, "log_start": log_start}
            group_log.note(group, "retention_passed_cursor", window=window, **passed)
        case TailLost(known_end=known_end, kept_to=kept_to, in_flight=in_flight):
            lost = {"known_end": known_end, "kept_to": kept_to, "in_flight": in_flight}
            group_log.note(group, "log_tail_lost", window=window, **lost)
        case _:
            assert_never(command)


def log_loaded(window: str, snapshot: Snapshot) -> None:
    log.info(
        "window_loaded",
        window=window,
        cursor=snapshot.cursor,
        settled=sum(last - first + 1 for first, last in snapshot.settled),
        leases=len(snapshot.leases),
        retries=len(snapshot.retries),
    )
