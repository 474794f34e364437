"""`python -m tests.rig.from_sources MODULE ARG...` runs a module over Keyway's sources, although
modules of theirs are compiled here.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("dispatcher", "gateway", "keyway")


def prefer_sources() -> None:
    """For all that is imported from now on."""
    of_sources = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def hook(path: str) -> object:
        place = Path(path).resolve()
        inside = place.is_relative_to(REPOSITORY) and place.relative_to(REPOSITORY).parts
        if not inside or inside[0] not in PACKAGES:
            raise ImportError(path)
        return of_sources(path)

    sys.path_hooks.insert(0, hook)  # type: ignore[arg-type]
    sys.path_importer_cache.clear()


if __name__ == "__main__":
    prefer_sources()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
