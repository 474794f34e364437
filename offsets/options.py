"""How a committer decides: as the configuration says, or the options of a command."""

from __future__ import annotations

from dataclasses import dataclass

from keyway.clusters.config import OffsetsSection
from offsets.core.plan import Mode
from offsets.limits import AT_WORK_ON_BOTH_MS


@dataclass(frozen=True, slots=True)
class Options:
    mode: Mode
    force: bool = False
    rewind: bool = False
    earliest: bool = False
    flags_in_metadata: bool = False
    empty_ms: int = 0  # without members, before a group is moved away from work of its own
    both_ms: int = AT_WORK_ON_BOTH_MS

    @staticmethod
    def of(settings: OffsetsSection) -> Options:
        return Options(
            Mode(settings.mode),
            rewind=settings.rewind,
            earliest=settings.before_log_start == "earliest",
            flags_in_metadata=settings.flags_in_metadata,
            empty_ms=settings.empty_ms,
        )
