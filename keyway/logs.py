"""Structured logs: one line per event on stderr, `key=value` for people or JSON for machines.

Every line names its part of the node (`logger`). Lines of libraries, through the standard library's
logging, have the same form.

A line that cannot be written (stderr's reader is gone, the disk is full) is counted and given up:
the node goes on without it, and `/health` says so until a line can be written again.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Of one value of a line. Clients choose many of them: a client id may have 32,767.
TEXT_CHARS_MAX = 4_096

# Between two lines of one kind of exception that Python can raise to nobody.
UNRAISABLE_S = 10.0

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
    if sys.unraisablehook is sys.__unraisablehook__:  # a test's own stays
        sys.unraisablehook = Unraisable()


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


@dataclass(slots=True)
class Unraisable:
    """Exceptions that Python can raise to nobody. Strangers cause some: a TLS client with a server
    name that is no ASCII. So one line is written at once, and those that follow are counted.
    """

    now_s: Callable[[], float] = time.monotonic
    _last_s: dict[str, float] = field(default_factory=dict)  # by kind; there are few
    _left_out: dict[str, int] = field(default_factory=dict)

    def __call__(self, what: sys.UnraisableHookArgs) -> None:
        kind, now_s = what.exc_type.__name__, self.now_s()
        if now_s - self._last_s.get(kind, -UNRAISABLE_S) < UNRAISABLE_S:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last_s[kind] = now_s
        structlog.get_logger("keyway.python").warning(
            "exception_ignored",
            # Not its text: it may be a stranger's.
            of=getattr(what.object, "__qualname__", type(what.object).__name__),
            left_out=self._left_out.pop(kind, 0),
            exc_info=None
            if what.exc_value is None
            else (what.exc_type, what.exc_value, what.exc_traceback),
        )


class _LibraryLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        level = min(logging.CRITICAL, record.levelno // 10 * 10)  # some have levels in between
        log.log(level, record.getMessage(), exc_info=record.exc_info)
