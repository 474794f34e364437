"""House rules that no linter knows: sizes, names, headers, the unit tree, the changelog."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.compiled import hot_sources, shell_sources

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "demo",
    "gateway",
    "dispatcher",
    "offsets",
    "schema_dist",
    "spark",
    "keyway",
    "tests",
)
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# Above these a line `# Long: …` at the file's or the class's head says why.
FILE_LINES_REASONED, CLASS_METHODS_REASONED = 450, 25
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "misc", "common"}
TEST_AREAS = ("unit", "shell", "integration", "property", "spark", "browser", "conformance")
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a module's, without the expressions in them (ast.walk takes seconds for those)."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(tree, block, ()):
            yield statement
            yield from statements(statement)


def opens_with_text(path: Path) -> bool:
    with path.open(encoding="utf-8") as lines:
        passed = (tokenize.COMMENT, tokenize.NL)
        tokens = tokenize.generate_tokens(lines.readline)
        return next(token.type for token in tokens if token.type not in passed) == tokenize.STRING


def long_functions(text: str) -> list[tuple[str, int]]:
    """(name, lines) of functions above the limit, decorators and docstring not counted."""
    found: list[tuple[str, int]] = []
    if text.count("\n") <= FUNCTION_LINES_MAX:
        return found
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                assert docstring.end_lineno is not None
                lines -= docstring.end_lineno - docstring.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append((node.name, lines))
    return found


def test_files_are_short() -> None:
    long = {
        relative(path): lines
        for path in sources(*PACKAGES)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    }
    assert not long


def test_functions_are_short() -> None:
    long = {
        relative(path): found
        for path in sources(*PACKAGES)
        if (found := long_functions(path.read_text(encoding="utf-8")))
    }
    assert not long


def unreasoned(text: str) -> list[str]:
    """Classes with many methods, and "file" if it is long, without a reason beside them."""
    lines = text.splitlines()
    found = []
    many = text.count("    def ") + text.count("    async def ") > CLASS_METHODS_REASONED
    for node in ast.parse(text).body if many else ():
        if isinstance(node, ast.ClassDef):
            methods = [
                statement
                for statement in node.body
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            reasoned = lines[first - 2].startswith("# Long: ")
            if len(methods) > CLASS_METHODS_REASONED and not reasoned:
                found.append(node.name)
    if len(lines) > FILE_LINES_REASONED and "\n# Long: " not in text:
        found.append("file")
    return found


def test_what_is_long_has_a_reason_beside_it() -> None:
    """A file of tests is as long as its source needs: it has the source's name."""
    found = {
        relative(path): names
        for path in sources(*PACKAGES)
        if not path.name.startswith("test_")
        and (names := unreasoned(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_what_is_long_without_a_reason_is_found() -> None:
    methods = "".join(f"    def m{at}(self): ...\n" for at in range(CLASS_METHODS_REASONED + 1))
    assert unreasoned(f"x = 1\nclass C:\n{methods}") == ["C"]
    assert not unreasoned(f"x = 1\n# Long: it is.\n@d\nclass C:\n{methods}")
    assert unreasoned("x = 1\n" * (FILE_LINES_REASONED + 1)) == ["file"]


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n" * FUNCTION_LINES_MAX
    assert long_functions(f"def long():\n{body}") == [("long", FUNCTION_LINES_MAX + 1)]
    assert long_functions(
        f"class C:\n    async def long(self):\n{body.replace('    x', '        x')}"
    )
    assert not long_functions(f'def short():\n    """One.\n\n    Two."""\n{body[10:]}')


def test_names_say_what_is_inside() -> None:
    empty = [
        relative(path)
        for path in sources(*PACKAGES)
        if EMPTY_NAMES & set(path.stem.split("_")) or EMPTY_NAMES & set(path.parent.name.split("_"))
    ]
    assert not empty


def test_modules_open_with_what_they_are() -> None:
    # Tests may speak through their names; the product may not.
    silent = [
        relative(path)
        for path in sources(*PACKAGES[:-1])
        if path.name != "__init__.py" and not opens_with_text(path)
    ]
    assert not silent


def test_compiled_functions_name_a_caught_exception_once() -> None:
    """mypyc gives a name the type of its first `except ... as`, and refuses the others at run
    time.
    """
    twice = []
    for source in (*hot_sources(ROOT), *shell_sources(ROOT)):
        for function in ast.walk(ast.parse((ROOT / source).read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            caught: dict[str, set[str]] = {}
            for part in ast.walk(function):
                if isinstance(part, ast.ExceptHandler) and part.name and part.type:
                    caught.setdefault(part.name, set()).add(ast.unparse(part.type))
            twice += [(source, name) for name, kinds in caught.items() if len(kinds) > 1]
    assert not twice


def test_handlers_open_with_versions_and_what_is_not_implemented() -> None:
    no_api = {"__init__.py", "build.py", "limits.py", "coordinating.py"}
    no_api |= {"share_plan.py", "share_requests.py"}  # of 78 and 79
    handlers = [path for path in sources("gateway/handlers") if path.name not in no_api]
    assert handlers
    wrong = []
    for path in handlers:
        header = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if not re.search(r"\bv\d", header) or "implemented" not in header.lower():
            wrong.append(relative(path))
    assert not wrong, "the header names the API, its versions (v0-4), and the parts not implemented"


def has_source(test: Path, room: Path) -> bool:
    """Is there a source it may be about? test_window_joins.py may test window.py."""
    folder = ROOT / test.relative_to(room).parent
    words = test.stem.removeprefix("test_").split("_")
    stems = ["_".join(words[:at]) for at in range(len(words), 0, -1)]
    return any((folder / f"{stem}.py").exists() or (folder / stem).is_dir() for stem in stems)


@pytest.mark.parametrize("room", ["unit", "shell"])
def test_unit_and_shell_tests_mirror_the_sources(room: str) -> None:
    top = ROOT / "tests" / room
    tests = [path for path in top.rglob("test_*.py") if path.name != "test_conftest.py"]
    assert tests
    assert not [relative(path) for path in tests if not has_source(path, top)]


def test_integration_tests_are_in_areas() -> None:
    top = ROOT / "tests" / "integration"
    assert not [relative(path) for path in top.glob("test_*.py")]
    assert list(top.glob("*/test_*.py"))


def test_rigs_are_not_among_the_tests() -> None:
    rigs = [
        relative(path)
        for path in sources("tests/unit", "tests/shell", "tests/integration")
        if path.name not in ("__init__.py", "conftest.py") and not path.name.startswith("test_")
    ]
    assert not rigs, "their place is tests/rig"


def imported_areas(text: str) -> set[str]:
    """The areas of tests that a file imports from."""
    found = re.findall(r"^\s*(?:from|import) tests(?:\.| import )(\w+)", text, re.MULTILINE)
    return set(found) & set(TEST_AREAS)


def test_areas_of_tests_share_rigs_alone() -> None:
    across = {
        relative(path): sorted(others)
        for area in (*TEST_AREAS, "rig")
        for path in sources(f"tests/{area}")
        if (others := imported_areas(path.read_text(encoding="utf-8")) - {area})
    }
    assert not across, "the place of what several areas use is tests/rig"


def test_an_import_across_areas_is_found() -> None:
    text = (
        "import tests.unit.a\nif True:\n    from tests import shell\nfrom tests.rig import kafka\n"
    )
    assert imported_areas(text) == {"unit", "shell"}


def test_test_folders_are_packages() -> None:
    # Two test files of one name in two folders that are no packages would hide each other.
    folders = {path.parent for path in sources("tests") if path.name.startswith("test_")}
    assert not [
        relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ]


def test_changelog_is_in_form() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Changelog"
    releases = [line for line in lines if line.startswith("## ")]
    assert releases, "at least one release"
    for line in releases:
        assert re.fullmatch(r"## (\[?Unreleased\]?|\[?\d+\.\d+\.\d+\]? - \d{4}-\d\d-\d\d)", line), (
            line
        )
    for line in lines:
        if line.startswith("### "):
            assert line.removeprefix("### ") in CHANGE_KINDS, line
