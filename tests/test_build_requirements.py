"""A build on a fresh machine has the packages of `build-system.requires` and no others. mypyc reads
the types of all that the compiled modules import, and of what these import.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from gateway.compiled import hot_sources, shell_sources

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
UNTYPED = {
    name.removesuffix(".*")
    for override in PROJECT["tool"]["mypy"]["overrides"]
    if override.get("ignore_missing_imports")
    for name in override["module"]
}


def imported(path: Path) -> set[str]:
    """The modules that the file imports anywhere, and those that may be modules: names of them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def source_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.exists()), None)


def test_a_build_on_a_fresh_machine_has_all_that_the_compiler_reads() -> None:
    waiting = [ROOT / source for source in (*hot_sources(ROOT), *shell_sources(ROOT))]
    read: set[Path] = set()
    foreign: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in read:
            continue
        read.add(path)
        for module in imported(path):
            ours = source_of(module)
            if ours is not None:
                waiting.append(ours)
            elif source_of(module.partition(".")[0]) is None:
                foreign.add(module.partition(".")[0])
    foreign -= {*sys.stdlib_module_names, *UNTYPED}
    brought_by = packages_distributions()
    distributions = {name for module in foreign for name in brought_by[module]}
    assert {"structlog", "pydantic"} <= distributions, "the walk finds what is there"
    requires = PROJECT["build-system"]["requires"]
    required = {re.split(r"[\[<>=]", line)[0].lower().removeprefix("types-") for line in requires}
    brought = {"mypy-extensions", "librt"}  # by mypy
    assert {name.lower().replace("_", "-") for name in distributions} <= required | brought
