"""The faults of a file, one line each."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from keyway.clusters.yaml_file import first_fault


class Cluster(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    bootstrap_servers: str
    timeout_ms: int = 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a", "bootstrap": "b:1"}, "bootstrap: unknown field (and 1 more)"),
        ({"name": "a"}, "bootstrap_servers: is missing"),
        ({}, "name: is missing (and 1 more)"),
        ({"name": 1, "bootstrap": "b:1"}, "name: text is expected (and 2 more)"),
    ],
)
def test_the_cause_comes_before_its_effect(given: dict[str, object], said: str) -> None:
    """A mistyped name is an unknown field, and one that is missing."""
    with pytest.raises(ValidationError) as raised:
        Cluster.model_validate(given)
    assert first_fault(raised.value) == said
