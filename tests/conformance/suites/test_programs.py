from __future__ import annotations

import pytest

from tests.conformance.suites.programs import verdicts


class OfItsOwn(Exception):
    """What a suite's library raises."""


def fails(error: Exception) -> None:
    raise error


def test_a_check_that_fails_in_the_words_of_its_library_leaves_the_others_their_verdicts() -> None:
    checks = [
        ("asserts", lambda: fails(AssertionError("one  of\ntwo"))),
        ("raises", lambda: fails(OfItsOwn("no such offset"))),
        ("passes", lambda: None),
    ]
    assert verdicts(checks, (OfItsOwn,)) == {
        "asserts": "failed: one of two",
        "raises": "failed: no such offset",
        "passes": "passed",
    }
    with pytest.raises(OfItsOwn):
        verdicts(checks)
