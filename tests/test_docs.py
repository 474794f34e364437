"""The documents against the tree: options, files, links, commands, tests, sizes."""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pydantic import BaseModel

from gateway.cli.main import app
from gateway.config.admin import MaskRule, TokenSection
from gateway.config.authentication import AuthenticationSection, BearerSection
from gateway.config.client_limits import LimitSection
from gateway.config.file import Config, load
from gateway.config.groups import FilterRule, GroupSection
from gateway.config.listen import ServerNamesSection
from gateway.config.tls import ListenerTls
from gateway.config.upstream import Sasl, Tls
from tests.rig.transcripts import blocks

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
)
EXAMPLE = ROOT / "keyway.example.yaml"
LINES_MAX = {"README.md": 160, "ARCHITECTURE.md": 290}
ARCHITECTURE_LINE_CHARACTERS_MAX = 200
PACKAGES = ("demo", "gateway", "dispatcher", "offsets", "schema_dist", "spark", "keyway")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------ keyway.example.yaml


def uncommented() -> str:
    """The example with every option set. Prose has one space behind its `#`, options do not."""
    return re.sub(r"^( *)#(?! \S)", r"\1", EXAMPLE.read_text("utf-8"), flags=re.M)


def fields_of(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def test_the_example_is_exactly_the_defaults() -> None:
    shown = load(EXAMPLE)
    assert shown.model_copy(update={"groups": ()}) == Config()
    assert shown.groups == (GroupSection(),)
    assert shown.group("any") == Config().group("any")


def test_the_example_has_every_option() -> None:
    raw: dict[str, Any] = yaml.safe_load(uncommented())
    listen = dict(raw["listen"])
    alternatives = {name: listen.pop(name) for name in ("listeners", "sni")}
    login = listen["authentication"]
    tokens = login.pop("oauthbearer")  # for another mechanism
    BearerSection.model_validate(tokens)
    everything = Config.model_validate({**raw, "listen": listen})
    named = {"name": "x", "tls": listen["tls"], "sni": alternatives["sni"]}
    Config.model_validate({"listen": [*alternatives["listeners"], {**named, "host": "::1"}]})
    assert alternatives["sni"].keys() == fields_of(ServerNamesSection)
    # A secret has one place; the others stand beside it as comments.
    assert {*listen["tls"], "key_password_file"} == fields_of(ListenerTls)
    assert {*login, "oauthbearer"} == fields_of(AuthenticationSection)
    assert {*tokens, "jwks_file"} == fields_of(BearerSection)
    assert raw.keys() == fields_of(Config)
    for name, section in everything:
        if name not in ("groups", "limits"):
            other = {"redis_url_file"} if name == "state" else set()
            assert raw[name].keys() | other == fields_of(type(section)), name
    (limit,) = raw["limits"]
    assert limit.keys() == fields_of(LimitSection)
    (group,) = raw["groups"]
    assert group.keys() == fields_of(GroupSection)
    assert group["filters"][0].keys() == fields_of(FilterRule)
    assert {*raw["upstream"]["sasl"], "password_env", "password_file"} == fields_of(Sasl)
    assert {*raw["upstream"]["tls"], "key_password_file"} == fields_of(Tls)
    assert raw["admin"]["tokens"][0].keys() == fields_of(TokenSection)
    assert raw["admin"]["masks"][0].keys() == fields_of(MaskRule)


def test_the_example_says_why() -> None:
    """Every option has its reason behind it or above it."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    silent = [
        line
        for above, line in pairwise(lines)
        if re.match(r" *(#(?! \S))?[ -]*[a-z_]+:", line)
        and not re.search(r"\S # \S", line)
        and not re.match(r" *# \S", above)
    ]
    assert not silent


# ---------------------------------------------------------------------------------------- documents


def test_every_folder_is_in_the_file_map() -> None:
    file_map = text_of("ARCHITECTURE.md").split("## File map", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.*?`) \| \S", file_map, re.M)
    listed = [folder for row in rows for folder in re.findall(r"`([\w/]+)/`", row)]
    assert len(listed) == len(set(listed))
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for kind in ("*.py", "*.js")
        for path in (ROOT / package).rglob(kind)
        if path.name != "__init__.py"
    }
    assert sorted(folders - set(listed)) == [], "not in the file map"
    assert sorted(set(listed) - folders) == [], "in the file map and not in the tree"


LIMIT = re.compile(r"^\| [^|]+ \| ([\d,]+) \| `([\w/.]+)` \| `([\w.\[\]]+)` \|$", re.M)


def test_the_limits_of_the_sizing_are_those_of_the_code() -> None:
    found = LIMIT.findall(text_of("docs/sizing.md"))
    assert len(found) >= 10
    for said, file, name in found:
        if file.endswith(".py"):
            room = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            value = getattr(room, name)
        else:
            section, _, option = name.partition(".")
            model = Config().listen if section == "listen" else GroupSection()
            value = getattr(model, option)
        assert int(said.replace(",", "")) == value, name


@pytest.mark.parametrize("document", LINES_MAX)
def test_short_enough_to_be_read(document: str) -> None:
    assert len(text_of(document).splitlines()) <= LINES_MAX[document]


def test_lines_of_the_architecture_are_short() -> None:
    lines = enumerate(text_of("ARCHITECTURE.md").splitlines(), 1)
    assert not [number for number, line in lines if len(line) > ARCHITECTURE_LINE_CHARACTERS_MAX]


def test_every_page_is_in_the_index() -> None:
    pages = {Path(page).name for page in DOCUMENTS if page.startswith("docs/")} - {"README.md"}
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of("docs/README.md")))
    assert pages - linked == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_stand_in_blocks_that_are_run(document: str) -> None:
    """`test_documents.py` runs the blocks of `console`."""
    elsewhere = [
        block.text
        for block in blocks(text_of(document))
        if block.language in ("sh", "bash", "shell")
        or (block.language != "console" and re.search(r"^\$ ", block.text, re.M))
    ]
    assert not elsewhere


@pytest.mark.parametrize("document", DOCUMENTS)
def test_configurations_that_are_shown_are_valid(document: str) -> None:
    for block in blocks(text_of(document)):
        if block.language == "yaml":
            shown = yaml.safe_load(block.text)
            if set(shown) & fields_of(Config):  # else: the YAML of another service
                Config.model_validate(shown)


def anchor_of(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / document).parent / path if path else ROOT / document
        if not file.exists():
            dead.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.M)
            if anchor not in map(anchor_of, headings):
                dead.append(target)
    assert not dead


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document: str) -> None:
    named = re.findall(r"`((?:\w[\w.-]*/)+[\w.-]*|\w+\.(?:py|yaml|yml|md))`", text_of(document))
    names = tracked()
    missing = [
        name
        for name in named
        if not (ROOT / name).exists()
        and name not in GENERATED
        and ("/" in name or name not in names)
    ]
    assert not missing


GENERATED = {
    "keyway.yaml",
    "keyway-data/",
    "keyway/contexts.yaml",
    "build/bench-cost.png",
    "build/keyway-spark.zip",
    "build/profile.folded",
    "build/spark/classes.jsa",
}


@cache
def tracked() -> set[str]:
    """Names of files."""
    folders = [ROOT / folder for folder in ("gateway", "dispatcher", "spark", "tests", "docker")]
    return {path.name for folder in folders for path in folder.rglob("*.*")} | {
        path.name for path in ROOT.glob("*.*")
    }


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", text_of("Makefile"), re.M))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_that_are_named_exist(document: str) -> None:
    named = set(re.findall(r"`(?:\w+=\S+ )?make ([a-z-]+)", text_of(document)))
    named |= set(re.findall(r"^\$ (?:\w+=\S+ )?make ([a-z-]+)", text_of(document), re.M))
    assert named - targets() == set()
    if document == "README.md":
        assert {"demo", "test"} <= named


@cache
def root_command() -> Any:
    return typer.main.get_command(app)


@pytest.mark.parametrize("document", sorted({*DOCUMENTS} - {"CHANGELOG.md"}))
def test_commands_that_are_named_exist(document: str) -> None:
    spoken = re.findall(r"(?:`|^\$ )keyway ([a-z -]+)", text_of(document), re.M)
    assert spoken or document != "README.md"
    for words in spoken:
        command: Any = root_command()
        for word in words.split():
            if word.startswith("-"):
                assert any(word in parameter.opts for parameter in command.params), words
                break
            if not hasattr(command, "get_command"):
                break
            command = command.get_command(None, word)
            assert command is not None, words


@cache
def defined_tests() -> set[str]:
    """Names of test functions and of test files."""
    names: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names |= {path.name, path.stem, *re.findall(r"^ *(?:async )?def (\w+)", text, re.M)}
    return names


# docs/conformance.md names tests of others.
@pytest.mark.parametrize("document", [name for name in DOCUMENTS if "conformance" not in name])
def test_tests_that_are_named_exist(document: str) -> None:
    named = set(re.findall(r"\b(test_\w+(?:\.py)?)", text_of(document)))
    assert named - defined_tests() == set()
    if document in ("README.md", "ARCHITECTURE.md"):
        assert len(named) >= 10, "claims name the tests that prove them"


def test_every_route_is_on_the_page_of_rest() -> None:
    shown = set(re.findall(r"/(?:v1/)?[a-z]+(?:/[a-z]+)*(?:\.json)?", text_of("docs/rest.md")))
    routes = json.loads(text_of("docs/openapi.json"))["paths"]
    assert {route.removesuffix("/{group}") for route in routes} - shown == set()


def test_every_command_is_on_the_page_of_commands() -> None:
    """A row names `keyway group list`, and then `describe` alone; or a group of commands whose own
    pages have them.
    """
    page = text_of("docs/cli.md").split("## Forms of output", 1)[0]
    shown: set[str] = set()
    for row in re.findall(r"^\| (`keyway .*?) \| ", page, re.M):
        group = ""
        for words in re.findall(r"`(?:keyway )?([a-z ]+)", row):
            first, _, second = words.strip().partition(" ")
            group = first if second else group
            shown |= {first, f"{group} {first}", words.strip()}
    wanted: set[str] = set()
    for name in root_command().list_commands(None):
        command: Any = root_command().get_command(None, name)
        if not hasattr(command, "list_commands") or name in BETWEEN_CLUSTERS:
            wanted.add(name)
        else:
            wanted |= {f"{name} {each}" for each in command.list_commands(None)}
    assert wanted - shown == set()


BETWEEN_CLUSTERS = ("distribute", "offsets", "pipeline", "schemas")  # their own pages have the rest


def test_the_alerts_that_are_named_exist_and_critical_ones_are_named() -> None:
    groups = yaml.safe_load(text_of("docs/monitoring/keyway-alerts.yaml"))["groups"]
    rules = {rule["alert"]: rule["labels"]["severity"] for one in groups for rule in one["rules"]}
    for page in sorted((ROOT / "docs").glob("*.md")):
        named = set(re.findall(r"`(Keyway[A-Z]\w+)`", page.read_text(encoding="utf-8")))
        assert named - rules.keys() == set(), page.name
    critical = {alert for alert, severity in rules.items() if severity == "critical"}
    assert critical - set(re.findall(r"`(Keyway\w+)`", text_of("docs/lag-and-metrics.md"))) == set()
