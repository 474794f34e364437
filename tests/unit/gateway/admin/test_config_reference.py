"""The reference of options is that of the models, whole, and the file is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.config_reference import reference, text
from gateway.config.file import Config
from gateway.config.groups import FilterRule, GroupSection
from gateway.config.upstream import UpstreamSection
from keyway.clusters.config import Cluster, ClustersConfig, LinkTargets, Selection, TreeNode

FILE = Path(__file__).resolve().parents[4] / "docs" / "configuration.md"


def tables(page: str) -> dict[str, dict[str, list[str]]]:
    """{heading: {option: cells}}; the head of a file has the heading ""."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in ("\n" + page).split("\n### "):
        heading, _, body = section.partition("\n")
        rows = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in body.splitlines()]
        named = {row[0].strip("`"): row for row in rows if row[0].startswith("`")}
        found[heading.strip("`")] = named
    return found


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), (
        "python -m gateway.admin.config_reference > docs/configuration.md"
    )


@pytest.mark.parametrize(
    ("file", "heading", "model"),
    [
        (Config, "", Config),
        (Config, "upstream", UpstreamSection),
        (Config, "groups[]", GroupSection),
        (Config, "groups[].filters[]", FilterRule),
        (ClustersConfig, "", ClustersConfig),
        (ClustersConfig, "clusters[]", Cluster),
        (ClustersConfig, "tree", TreeNode),
        (ClustersConfig, "targets[]", LinkTargets),
        (ClustersConfig, "subjects", Selection),
    ],
)
def test_every_option_has_its_row(
    file: type[BaseModel], heading: str, model: type[BaseModel]
) -> None:
    rows = tables(reference(file))[heading]
    assert list(rows) == list(model.model_fields)
    assert all(row[-1] for row in rows.values()), "a meaning for each"


def test_every_section_has_its_table_and_no_other() -> None:
    assert list(tables(reference(Config))) == [
        *("", "upstream", "upstream.sasl", "upstream.tls", "listen", "listen.tls"),
        *("listen.sni", "listen.authentication", "listen.authentication.oauthbearer"),
        *("listen.listeners[]", "listen.listeners[].tls", "listen.listeners[].sni"),
        "listen.listeners[].authentication",
        "listen.listeners[].authentication.oauthbearer",
        *(
            "admin",
            "admin.tokens[]",
            "admin.tls",
            "admin.masks[]",
            "state",
            "nodes",
            "registry_view",
            "repartition",
        ),
        *("limits[]", "groups[]", "groups[].filters[]"),
    ]


def test_types_units_defaults_and_limits_are_those_of_the_model() -> None:
    page = tables(reference(Config))
    assert page["groups[]"]["span_max"][1:5] == ["integer", "offsets", "`16384`", "1 to 1,048,576"]
    assert page["groups[]"]["lock_duration_ms"][1:5] == [
        *("integer", "ms", "`30000`", "100 to 3,600,000"),
    ]
    assert page["groups[]"]["rejected"][3:5] == ['`"drop"`', "`drop`, `dead_letter`, `block`"]
    assert page["upstream.sasl"]["password"][1:4] == ["secret", "", "none"]
    assert page["listen"]["port_base"][1] == "port"
    assert page["groups[].filters[]"]["keys"][1:5] == [
        *("list of text", "", "required", "at least 1 entry"),
    ]
    clusters = tables(reference(ClustersConfig))
    assert clusters["tree"]["level"][3] == "required", "a tree without it is refused"
    assert clusters["topics"]["include"][4] == "at most 1,000 entries; each not empty"


class Silent(BaseModel):
    """A file."""

    option: str = ""


class WithoutUnit(BaseModel):
    """A file."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    length: int = Field(3, description="Of something.")


def test_an_option_without_meaning_or_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="option: its model has no description"):
        reference(Silent)
    with pytest.raises(ValueError, match="length: its unit is neither"):
        reference(WithoutUnit)
