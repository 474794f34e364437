"""The planted mutants, the code left alone, and explanations, each of an existing mutant."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutation.__main__ import explained
from tests.mutation.mutants import mutants_of
from tests.mutation.trial import every_module

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''
LIMIT = 4 * 16
NAME = "text"

class Thing:
    size: int = 3

    def grow(self, by: int = 1) -> int:
        """Says nothing."""
        assert by > 0, "by what?"
        if by < LIMIT and not self.full:
            self.size += by
        return min(self.size, LIMIT)

def tidied(numbers: list[int]) -> list[int]:
    return sorted(numbers, key=abs)
'''


def test_what_is_planted() -> None:
    assert [mutant.name for mutant in mutants_of("m", SOURCE)] == [
        "m.LIMIT: `4 * 16` -> `4 + 16`",
        "m.LIMIT: `4` -> `5`",
        "m.LIMIT: `16` -> `17`",
        "m.Thing.grow: `by < LIMIT and (not self.full)` -> `not (by < LIMIT and (not self.full))`",
        "m.Thing.grow: `by < LIMIT and (not self.full)` -> `by < LIMIT or not self.full`",
        "m.Thing.grow: `by < LIMIT` -> `by <= LIMIT`",
        "m.Thing.grow: `by < LIMIT` -> `not by < LIMIT`",
        "m.Thing.grow: `not self.full` -> `self.full`",
        "m.Thing.grow: `self.size += by` -> `pass`",
        "m.Thing.grow: `self.size += by` -> `self.size -= by`",
        "m.Thing.grow: `return min(self.size, LIMIT)` -> `return None`",
        "m.Thing.grow: `min(self.size, LIMIT)` -> `max(self.size, LIMIT)`",
        "m.tidied: `return sorted(numbers, key=abs)` -> `return None`",
        "m.tidied: `sorted(numbers, key=abs)` -> `list(numbers)`",
    ]


def test_a_mutant_is_the_module_with_one_change() -> None:
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants_of("m", SOURCE):
        mutated = ast.unparse(mutant.tree).splitlines()
        assert len(mutated) == len(original)
        assert sum(one != other for one, other in zip(original, mutated, strict=True)) == 1


def test_names_are_unique_and_what_is_explained_exists() -> None:
    names = [
        mutant.name
        for module in every_module(ROOT)
        for mutant in mutants_of(
            module, (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
        )
    ]
    assert len(set(names)) == len(names) > 2_000
    assert explained() - set(names) == set()
