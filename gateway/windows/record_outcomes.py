"""Records of Key-Shared groups, counted by group and outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dispatcher.core.steps import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.core.health_lines import first_named
from gateway.group_log import GroupLog
from gateway.windows.limits import GROUPS_NAMED

# Logged for the operator, beside the counter: one line per group in 10 s.
_LOGGED: Final = frozenset(
    {
        Notice.PARKED,
        Notice.DEAD_LETTERED,
        Notice.DROPPED,
        Notice.GAP_ACK,
        Notice.SPAN_FULL,
        Notice.TIMED_OUT,
        Notice.SATURATED,
        Notice.SILENT,
        Notice.HEARD_AGAIN,
        Notice.TRUNCATED,
    }
)


# So long /health tells of skipped records.
SKIPPED_TOLD_MS: Final = 900_000


# The outcome of skipped records in a group that skips keys on purpose: nobody has to hear of them.
FILTERED: Final = "filtered"


def _never(_group: str) -> bool:
    return False


@dataclass(slots=True)
class RecordOutcomes:
    """Logs the outcomes that an operator must see, too. `skips_expected`: of a group, by its
    settings.
    """

    log: GroupLog
    skips_expected: Callable[[str], bool] = _never
    _counts: dict[str, dict[str, int]] = field(default_factory=dict)  # by group and outcome
    _skipped_ms: dict[str, int] = field(default_factory=dict)  # by group, when the last time

    def noticed(self, group: str, partition: TopicPartition, noticed: Noticed) -> None:
        counts = self._counts.get(group)
        if counts is None:  # from 0: an alert on an increase must see the first record, too
            outcomes = [*(notice.value for notice in Notice), FILTERED]
            counts = self._counts[group] = dict.fromkeys(outcomes, 0)
        if noticed.notice is Notice.SKIPPED and self.skips_expected(group):
            counts[FILTERED] += noticed.count
            return
        counts[noticed.notice.value] += noticed.count
        if noticed.notice is Notice.SKIPPED:
            self._skipped_ms[group] = self.log.now_ms()
        if noticed.notice in _LOGGED:
            self._logged(group, partition, noticed)

    def _logged(self, group: str, partition: TopicPartition, noticed: Noticed) -> None:
        example: dict[str, object] = {
            "topic": partition.topic,
            "partition": partition.partition,
        }
        if noticed.offset >= 0:
            example["offset"] = noticed.offset
        if noticed.detail:
            example["detail"] = noticed.detail
        self.log.note(group, noticed.notice.value, noticed.count, **example)

    def of(self, group: str) -> dict[str, int]:
        """Records of a group by outcome, without those that never occurred."""
        counts = self._counts.get(group, {})
        return {outcome: count for outcome, count in counts.items() if count}

    def all(self) -> list[tuple[str, dict[str, int]]]:
        return list(self._counts.items())

    def warnings(self) -> list[str]:
        """Lines of /health; of many groups the first by name, and their number."""
        since_ms = self.log.now_ms() - SKIPPED_TOLD_MS
        groups = sorted([group for group, at_ms in self._skipped_ms.items() if at_ms > since_ms])
        lines = (
            f"group {group!r}: {self._counts[group][Notice.SKIPPED.value]} records were skipped:"
            " no member accepts their keys"
            for group in groups
        )
        others = "so were records of {} more groups"
        return first_named(lines, len(groups), GROUPS_NAMED, others)

    def forget(self, group: str) -> None:
        """Removes the series of a group that is gone."""
        self._counts.pop(group, None)
        self._skipped_ms.pop(group, None)
