"""The list of hot modules, and that `--version` tells the truth about them."""

from __future__ import annotations

import importlib
from pathlib import Path

from gateway import compiled

ROOT = Path(__file__).resolve().parents[3]


def test_hot_sources_are_the_cores_and_nothing_else() -> None:
    sources = compiled.hot_sources(ROOT)
    assert "gateway/core/wire/records.py" in sources
    assert "dispatcher/core/records/span.py" in sources
    assert not [source for source in sources if source.endswith("__init__.py")]
    leaves = {source for source in sources if "/core/" not in source}
    assert leaves == {
        f"dispatcher/store/{name}.py" for name in ("claims", "operations", "script_calls")
    }
    assert sources == sorted(sources)


def test_the_way_of_a_share_fetch_is_compiled() -> None:
    sources = compiled.shell_sources(ROOT)
    assert "gateway/handlers/share_fetch.py" in sources
    assert sources == sorted(sources)
    assert not set(sources) & set(compiled.hot_sources(ROOT))
    assert all((ROOT / source).exists() for source in sources)
    assert set(sources) == set(compiled.SHELL_MODULES), "each is there"


def test_answer_agrees_with_what_is_imported() -> None:
    for name, is_compiled in compiled.compiled_modules().items():
        loaded = importlib.import_module(name).__file__
        assert loaded is not None
        assert loaded.endswith(".py") is not is_compiled, name


def test_version_line_names_one_of_three_states() -> None:
    line = compiled.version_line()
    assert line.startswith("keyway ")
    assert any(word in line for word in (", compiled,", ", interpreted ", ", partly compiled "))
