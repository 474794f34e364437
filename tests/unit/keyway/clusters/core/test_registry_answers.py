"""A 404 is a registry's word only with a registry's code."""

from __future__ import annotations

import pytest

from keyway.clusters.core.registry_answers import says_absent


@pytest.mark.parametrize("code", [40400, 40401, 40403, 40499])
def test_a_registrys_own_words(code: int) -> None:
    assert says_absent({"error_code": code, "message": "not found"})


@pytest.mark.parametrize(
    "body", [None, "404 page not found", [], {}, {"error_code": 404}, {"error_code": 40500}]
)
def test_a_404_of_somebody_else(body: object) -> None:
    assert not says_absent(body)
