"""Names of error codes."""

from __future__ import annotations

from gateway.core.wire.errors import ErrorCode, error_name


def test_a_code_we_do_not_know_keeps_its_number() -> None:
    assert error_name(ErrorCode.CORRUPT_MESSAGE) == error_name(2) == "CORRUPT_MESSAGE"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(9_999) == "error 9999"
