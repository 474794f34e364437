"""Structured logs: one line per event on stderr, `key=value` for people or JSON for machines.

Every line names its part of the node (`logger`). Lines of libraries, through the standard library's
logging, have the same form.

A line that cannot be written (stderr's reader is gone, the disk is full) is counted and given up:
the node goes on without it, and `/health` says so until a line can be written again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import structlog

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Of one value of a line. Clients choose many of them: a client id may have 32,767.
TEXT_CHARS_MAX = 4_096

# A logger keeps its configuration from its first line on, which is cheaper. In one process with
# several configurations (tests) the first would stay, so they set this to False.
LOGGERS_KEEP_CONFIGURATION = True


def configure(
    form: LogFormat = "text", level: LogLevel = "info", said: Mapping[str, str | None] | None = None
) -> None:
    """`said`: fields that every line gets."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.KeyValueRenderer(
            key_order=["timestamp", "level", "logger", "event"]
        )
    )

    def say(
        _logger: object, _level: str, line: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        for name, value in (said or {}).items():
            line.setdefault(name, value)
        return line

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([say] if said else []),
            _short,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_NamedLogger,
        cache_logger_on_first_use=LOGGERS_KEEP_CONFIGURATION,
    )
    # Libraries: only warnings and errors.
    logging.basicConfig(handlers=[_LibraryLines(logging.WARNING)], level=logging.WARNING)


def _short(
    _logger: object, _level: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for name, value in line.items():
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
            line[name] = f"{value[:TEXT_CHARS_MAX]}... ({len(value):,} characters)"
    return line


@dataclass(slots=True)
class LostLines:
    """Lines of this process that could not be written."""

    count: int = 0
    reason: str = ""  # why the last line was lost; empty: it was written

    @property
    def trouble(self) -> str | None:
        """One line for `/health`; None: the log is being written."""
        return f"the log cannot be written: {self.reason}" if self.reason else None


lost_lines = LostLines()  # stderr is the process's own, so there is one


class _NamedLogger(structlog.PrintLogger):
    def __init__(self, name: str) -> None:
        super().__init__(sys.stderr)
        self.name = name

    def msg(self, message: str) -> None:
        try:
            super().msg(message)
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            lost_lines.count += 1
            lost_lines.reason = str(error)
        else:
            lost_lines.reason = ""

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _LibraryLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        level = min(logging.CRITICAL, record.levelno // 10 * 10)  # some have levels in between
        log.log(level, record.getMessage(), exc_info=record.exc_info)
