"""The dashboard's files: served with a strict policy, short, and none besides them."""

from __future__ import annotations

import asyncio
import fnmatch
import re
import tomllib
from pathlib import Path

import httpx
import pytest
from setuptools import find_namespace_packages  # type: ignore[import-untyped]
from starlette.applications import Starlette

from gateway.admin.dashboard.page import HEADERS, MEDIA_TYPES, assets, page_routes

ROOT = Path(__file__).parents[5]
STATIC = ROOT / "gateway" / "admin" / "dashboard" / "static"
LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def get(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=page_routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def sources(*kinds: str) -> list[Path]:
    return [file for file in sorted(STATIC.rglob("*")) if file.suffix.lstrip(".") in kinds]


def long_functions(text: str) -> list[str]:
    """First lines of functions and methods above the limit, by their indentation."""
    lines = text.splitlines()
    found = []
    for at, line in enumerate(lines):
        opening = re.match(r"( *)(export |async |function |[\w$]+\(.*\) \{$)", line)
        if opening and line.endswith("{"):
            end = next(
                (no for no in range(at + 1, len(lines)) if lines[no] == f"{opening[1]}}}"), at
            )
            if end - at + 1 > FUNCTION_LINES_MAX and "class " not in line:
                found.append(line)
    return found


def test_every_file_is_served_as_it_is() -> None:
    known = {file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file()}
    assert known == set(assets())
    for name, asset in assets().items():
        answer = get("/" if name == "index.html" else f"/dashboard/{name}")
        assert answer.status_code == 200
        assert answer.content == (STATIC / name).read_bytes()
        assert answer.headers["content-type"] == MEDIA_TYPES[name.rpartition(".")[2]]
        assert answer.headers["etag"] == asset.etag
        assert HEADERS.items() <= {header: answer.headers[header] for header in HEADERS}.items()


def test_a_browser_that_has_a_file_gets_it_once() -> None:
    etag = get("/").headers["etag"]
    again = get("/", {"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["none.js", "../page.py", "..%2Fpage.py", "views", "", "/", "%00"])
def test_nothing_else_is_served(path: str) -> None:
    assert get(f"/dashboard/{path}").status_code == 404


def test_nothing_comes_from_elsewhere() -> None:
    """Neither the policy nor a file names another host, and no text becomes HTML or code."""
    assert "http" not in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    names = ("http://www.w3.org/2000/svg",)  # of an XML namespace: nothing is loaded from there
    reading = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
    )
    for path in sources("js", "css", "html", "svg"):
        text = path.read_text(encoding="utf-8")
        for name in names:
            text = text.replace(name, "")
        assert not re.search(r"https?://|//[\w-]+\.\w+/", text), path
        assert not reading.search(text), path
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", get("/").text)


def test_files_and_functions_are_short_and_say_what_they_are() -> None:
    for path in sources("js", "css"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= LINES_MAX, path
        assert re.match(r"// [A-Z]|/\* [A-Z]", text), f"{path} opens with its purpose"
    for path in sources("js"):
        assert not long_functions(path.read_text(encoding="utf-8")), path


def test_a_package_of_the_gateway_holds_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    packages = find_namespace_packages(str(ROOT), include=["gateway*"])
    for path in (file for file in STATIC.rglob("*") if file.is_file()):
        assert any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns), path
        assert ".".join(path.relative_to(ROOT).parts[:-1]) in packages


def test_a_long_function_is_found() -> None:
    body = "  x();\n" * FUNCTION_LINES_MAX
    assert long_functions(f"export function long(a) {{\n{body}}}\n") == [
        "export function long(a) {"
    ]
    assert long_functions(f"class A {{\n  async long(a) {{\n{body}  }}\n}}\n")
    assert not long_functions(f"function short() {{\n{body[14:]}}}\n")
