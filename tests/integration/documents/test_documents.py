"""README and docs/, run as they stand: each command prints the output on its page."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from gateway.embedded.kafka import KafkaCluster
from tests.rig.documents import NOT_RUN, played, reason_not_to_run, settings_of
from tests.rig.gateway_process import REPOSITORY
from tests.rig.identified_node import guarded_kafka
from tests.rig.transcripts import Command, steps

pytestmark = pytest.mark.integration

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md"))]


def commands(document: str) -> list[Command]:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return [step for step in steps(text) if isinstance(step, Command)]


def to_run(document: str) -> bool:
    return any(reason_not_to_run(command.line) is None for command in commands(document))


def a_page(document: str) -> ParameterSet:
    """The page that a newcomer reads first costs little; those of all tasks cost minutes."""
    return pytest.param(document, marks=[] if document == "README.md" else pytest.mark.deep)


@pytest.mark.parametrize("document", [a_page(page) for page in PAGES if to_run(page)])
def test_every_command_prints_what_the_page_shows(
    kafka: KafkaCluster, tmp_path: Path, document: str
) -> None:
    page = steps((REPOSITORY / document).read_text(encoding="utf-8"))
    with ExitStack() as stack:
        servers = kafka.bootstrap_servers
        if "sasl" in settings_of(page).get("upstream", {}):
            _, servers = stack.enter_context(guarded_kafka())
        stack.enter_context(played(document, servers, tmp_path))


def test_every_reason_not_to_run_a_command_is_used() -> None:
    lines = [command.line for page in PAGES for command in commands(page)]
    assert [words for words in NOT_RUN if not any(line.startswith(words) for line in lines)] == []


def test_another_output_is_found(kafka: KafkaCluster, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ keyway --version\nnothing like this\n```\n")
    with (
        pytest.raises(AssertionError, match="the page shows"),
        played(str(page), kafka.bootstrap_servers, tmp_path),
    ):
        pass
