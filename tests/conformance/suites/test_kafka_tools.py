from __future__ import annotations

import pytest

from tests.conformance.suites.kafka_tools import row_with


def test_a_tool_that_tells_of_no_such_row_has_failed_in_its_own_words() -> None:
    table = "GROUP  TOPIC  PARTITION\ng  tools-10  0\ng  tools-1  0"
    assert row_with("tools-1", table) == ["g", "tools-1", "0"]
    with pytest.raises(AssertionError, match="failed due to a timeout"):
        row_with("tools-1", "Error: Executing consumer group command failed due to a timeout")
