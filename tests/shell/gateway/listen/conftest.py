"""Log lines of connections and servers are captured, whatever was configured before."""

from __future__ import annotations

import pytest

from tests.rig.logs import log_as_tests_do


@pytest.fixture(autouse=True)
def _logs_can_be_captured() -> None:
    log_as_tests_do()
