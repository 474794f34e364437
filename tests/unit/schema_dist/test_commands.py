"""`keyway schemas status` of services that do not work any more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from keyway.service import wall_ms
from schema_dist.commands import _reported, _status
from schema_dist.limits import SILENT_MS
from schema_dist.state_topic import StateTopic

WELL = {"target": "b", "behind": 0, "in_sync": 4, "refused": {}, "problem": None}


class State:
    def __init__(self, told: dict[str, Any] | None) -> None:
        self._told = told

    def status(self) -> dict[str, Any] | None:
        return self._told


@pytest.mark.parametrize(
    ("age_ms", "problem", "code", "said"),
    [
        (0, None, 0, ""),
        (0, "the primary cannot be read: HTTP 503", 1, "the primary cannot be read: HTTP 503"),
        (SILENT_MS + 1, None, 1, "not heard of since 20"),
        (SILENT_MS + 1, "HTTP 503", 1, "not heard of since 20"),
    ],
)
def test_a_status_that_nobody_has_renewed(
    age_ms: int, problem: str | None, code: int, said: str
) -> None:
    """It said "in sync", with 0, of a service that had been killed."""
    state = State(WELL | {"problem": problem, "at_ms": wall_ms() - age_ms})
    found = _reported("b", cast(StateTopic, state))
    assert isinstance(found, dict)
    answer = _status([found], [])
    assert answer.code == code
    assert str(found["problem"] or "").startswith(said)
    if age_ms and problem:
        assert str(found["problem"]).endswith("; before: HTTP 503")
