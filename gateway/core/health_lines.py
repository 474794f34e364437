"""Lines of /health about many things of one kind: only the first are named."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def first_named(lines: Iterable[str], count: int, most: int, others: str) -> list[str]:
    """The first `most` of `count` lines. If there are others, `others` tells how many, in place of
    its `{}`.
    """
    named = list(islice(lines, most))
    return named if count <= most else [*named, others.format(count - most)]
