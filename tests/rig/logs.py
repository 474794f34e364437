"""The log lines of code that tests run in their own process."""

from __future__ import annotations

import structlog

from keyway import logs


def log_as_tests_do() -> None:
    """Plain lines that can be captured, whatever was configured before. Structlog's own default
    draws a box of every local variable of a bug: half a second of CPU for each.
    """
    logs.LOGGERS_KEEP_CONFIGURATION = False
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure([structlog.processors.add_log_level, plain])
