"""Log lines of connections and servers are captured, whatever was configured before."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_can_be_captured() -> None:
    structlog.reset_defaults()
