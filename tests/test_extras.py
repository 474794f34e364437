"""What pyproject.toml asks for because its packages, used as Keyway uses them, ask for it."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
BROUGHT = {"numpy"}  # by pandas


def test_distribution_brings_what_spark_s_functions_over_arrow_ask_for() -> None:
    """Spark lists it as its own extra `sql`. Without pandas no link copies a record."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    asked = project["optional-dependencies"]["distribution"]
    needed = {
        requirement.name
        for requirement in map(Requirement, metadata.requires("pyspark") or ())
        if requirement.marker is not None and requirement.marker.evaluate({"extra": "sql"})
    }
    assert "pandas" in needed
    assert needed <= {Requirement(text).name for text in asked} | BROUGHT
