"""Modules out of zip files, as Spark's workers have them."""

from __future__ import annotations

import importlib
import sys
import zipimport
from pathlib import Path
from zipfile import ZipFile

import pytest

from spark.streaming import zips
from spark.streaming.orders import Writing
from spark.streaming.produce import copying


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package in a zip file, of which one module is imported."""
    path = tmp_path / "modules.zip"
    with ZipFile(path, "w") as file:
        for name in ("__init__", "first", "second"):
            file.writestr(f"zipped_for_a_test/{name}.py", f"NAME = {name!r}\n")
    monkeypatch.syspath_prepend(str(path))
    for name in ("zipped_for_a_test", "zipped_for_a_test.first", "zipped_for_a_test.second"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module("zipped_for_a_test.first")
    return str(path)


def test_a_task_leaves_no_importer_that_reads_a_zip_again(
    zipped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    reading = zipimport._read_directory  # type: ignore[attr-defined]

    def counted(archive: str) -> object:
        read.append(archive)
        return reading(archive)

    monkeypatch.setattr(zipimport, "_read_directory", counted)
    importlib.invalidate_caches()
    assert read.count(zipped) >= 2, "Python does not do it any more: the module is not needed"
    assert list(copying(Writing("link", {}, {}, {}, {}, {}, True, 60_000))([])) == []
    read.clear()
    importlib.invalidate_caches()
    assert read == []


def test_modules_of_the_zip_are_imported_as_before(zipped: str) -> None:
    zips.not_read_again()
    second = importlib.import_module("zipped_for_a_test.second")
    assert second.NAME == "second"
    assert str(second.__file__).startswith(zipped)


def test_other_importers_stay() -> None:
    before = {
        path: found
        for path, found in sys.path_importer_cache.items()
        if not isinstance(found, zipimport.zipimporter)
    }
    zips.not_read_again()
    assert {path: sys.path_importer_cache.get(path) for path in before} == before
