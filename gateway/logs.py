"""Structured logs: one line per event on stderr, `key=value` for people or JSON for machines.

Every line says which part of the node it comes from (`logger`); what libraries say through the
standard library's logging is such a line, too.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure(form: LogFormat = "text", level: LogLevel = "info") -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.KeyValueRenderer(
            key_order=["timestamp", "level", "logger", "event"]
        )
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_NamedLogger,
        cache_logger_on_first_use=True,
    )
    # Libraries: only what an operator must see.
    logging.basicConfig(handlers=[_LibraryLines(logging.WARNING)], level=logging.WARNING)


class _NamedLogger(structlog.PrintLogger):
    def __init__(self, name: str) -> None:
        super().__init__(sys.stderr)
        self.name = name


class _LibraryLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        level = min(logging.CRITICAL, record.levelno // 10 * 10)  # some have levels in between
        log.log(level, record.getMessage(), exc_info=record.exc_info)
