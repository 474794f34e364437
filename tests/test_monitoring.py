"""The alert rules and the dashboard speak of metrics, labels and values that the code has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from dispatcher.core.reports.stats import Held
from dispatcher.core.steps import Notice
from tests.rig.alerts import MONITORING, rules
from tests.rig.metric_names import exported, parts
from tests.rig.prometheus import TOOL

METRICS = exported()
RULES = rules()
DASHBOARD: dict[str, Any] = json.loads(
    (MONITORING / "keyway-dashboard.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VALUES = {  # of labels with a closed set of values
    "part": {part.name for part in parts() if part.troubles is not None},
    "outcome": {notice.value for notice in Notice},
    "state": {field.name for field in fields(Held)},
}


@dataclass(frozen=True, slots=True)
class Vector:
    """`labels`: those that it may have."""

    labels: frozenset[str]


class Unknown(Exception):
    """A name that the code does not have."""


def in_grafana(expression: str) -> str:
    """Its variables are no PromQL."""
    return expression.replace("$__rate_interval", "5m")


def check(expression: str) -> frozenset[str]:
    """The labels of its result. Raises Unknown, ValueError."""
    return labels_of(promql.parse(in_grafana(expression)))


def labels_of(expr: Any) -> frozenset[str]:
    match expr:
        case promql.NumberLiteral():
            return frozenset()
        case promql.ParenExpr():
            return labels_of(expr.expr)
        case promql.VectorSelector():
            return selected(expr)
        case promql.MatrixSelector():
            return selected(expr.vector_selector)
        case promql.AggregateExpr():
            return aggregated(expr)
        case promql.Call() if expr.func.name == "time":
            return frozenset()
        case promql.Call():
            inner = labels_of(expr.args[-1])
            return inner - {"le"} if expr.func.name == "histogram_quantile" else inner
        case promql.BinaryExpr():
            left, right = labels_of(expr.lhs), labels_of(expr.rhs)
            if left and right and left != right:
                raise Unknown(f"{sorted(left)} never matches {sorted(right)}")
            return left or right
        case _:
            raise NotImplementedError(str(expr))


def aggregated(expr: Any) -> frozenset[str]:
    inner = labels_of(expr.expr)
    if expr.modifier is None:
        return inner if str(expr.op) == "topk" else frozenset()
    if missing := set(expr.modifier.labels) - inner:
        raise Unknown(f"labels {sorted(missing)}")
    return frozenset(expr.modifier.labels)


def selected(selector: Any) -> frozenset[str]:
    if selector.name not in METRICS:
        raise Unknown(f"metric {selector.name}")
    for matcher in selector.matchers.matchers:
        if matcher.name not in METRICS[selector.name]:
            raise Unknown(f"label {matcher.name} of {selector.name}")
        known = VALUES.get(matcher.name)
        if known is not None and (missing := set(matcher.value.split("|")) - known):
            raise Unknown(f"values {sorted(missing)} of {matcher.name}")
    return METRICS[selector.name]


@pytest.mark.parametrize("alert", RULES)
def test_rules_speak_of_real_metrics(alert: str) -> None:
    check(RULES[alert].expression)


@pytest.mark.parametrize("alert", RULES)
def test_texts_of_rules_use_labels_that_the_result_has(alert: str) -> None:
    labels = check(RULES[alert].expression)
    groups = yaml.safe_load((MONITORING / "keyway-alerts.yaml").read_text("utf-8"))["groups"]
    (rule,) = [known for group in groups for known in group["rules"] if known["alert"] == alert]
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}


def summed_up(expr: Any) -> Iterator[str]:
    """The metrics that a `sum` adds up as they are."""
    match expr:
        case promql.AggregateExpr() if str(expr.op) == "sum":
            yield from added(expr.expr)
        case promql.ParenExpr() | promql.AggregateExpr():
            yield from summed_up(expr.expr)
        case promql.Call():
            for argument in expr.args:
                yield from summed_up(argument)
        case promql.BinaryExpr():
            yield from summed_up(expr.lhs)
            yield from summed_up(expr.rhs)
        case _:
            pass  # a metric that nobody adds up, or a number


def added(expr: Any) -> Iterator[str]:
    match expr:
        case promql.VectorSelector():
            yield str(expr.name)
        case promql.MatrixSelector():
            yield str(expr.vector_selector.name)
        case promql.ParenExpr():
            yield from added(expr.expr)
        case promql.Call():
            for argument in expr.args:
                yield from added(argument)
        case promql.BinaryExpr():
            yield from added(expr.lhs)
            yield from added(expr.rhs)
        case _:
            yield from summed_up(expr)


def test_what_every_node_tells_of_all_groups_is_not_counted_once_a_node() -> None:
    expressions = [rule.expression for rule in RULES.values()]
    expressions += [expression for _, expression, _ in targets()]
    names = {
        name
        for expression in expressions
        for name in summed_up(promql.parse(in_grafana(expression)))
    }
    assert "keyway_group_records_total" in names
    told_by_all = ("kafka_consumergroup_", "kafka_partition_", "keyway_window_records")
    assert not [name for name in names if name.startswith(told_by_all)]


def targets() -> Iterator[tuple[str, str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.mark.parametrize(("title", "expression", "legend"), list(targets()))
def test_panels_speak_of_real_metrics(title: str, expression: str, legend: str) -> None:
    labels = check(expression)
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels, title


def test_variables_are_made_of_real_metrics_and_all_are_used() -> None:
    variables = {entry["name"]: entry for entry in DASHBOARD["templating"]["list"]}
    for name, variable in variables.items():
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert match is not None
            assert match[2] in METRICS[match[1]], name
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) - {"__rate_interval"}
    assert used == variables.keys()


def test_panels_have_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_every_metric_is_on_the_dashboard() -> None:
    text = json.dumps(PANELS)
    left_out = {
        *("up", "keyway_server_connections_opened_total", "keyway_window_cursor"),
        *("keyway_offsets_partitions_behind", "keyway_offsets_entries_distributed_total"),
        *("keyway_schemas_writes_total", "keyway_schemas_failed_rounds_total"),
        "keyway_schemas_bad_records",
        # For boards of kafka-lag-exporter; ours has the same under other names.
        *("kafka_consumergroup_group_lag", "kafka_consumergroup_group_offset"),
        *("kafka_consumergroup_group_sum_lag", "kafka_consumergroup_group_topic_sum_lag"),
        *("kafka_consumergroup_group_max_lag", "kafka_partition_latest_offset"),
    }
    names = {name for name in METRICS if not name.endswith(("_sum", "_count"))}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == left_out


@pytest.mark.parametrize(
    "wrong",
    [
        "keyway_lag > 0",
        'keyway_window_records{place="parked"} > 0',
        'keyway_window_records{state="lost"} > 0',
        "sum by (consumergroup) (keyway_window_span)",
        "sum by (group) (keyway_window_span) > keyway_window_fill_ratio",
    ],
)
def test_a_name_that_is_not_exported_is_found(wrong: str) -> None:
    with pytest.raises(Unknown):
        check(wrong)


def test_what_is_no_promql_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        check("sum by (group (up)")


@pytest.mark.skipif(not TOOL.exists(), reason="make setup could not fetch Prometheus")
def test_the_scrape_configuration_of_the_page(tmp_path: Path) -> None:
    page = (MONITORING.parent / "lag-and-metrics.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(# prometheus\.yml.*?)```", page, re.DOTALL)
    file = tmp_path / "prometheus.yml"
    file.write_text(text)
    for name in ("token", "ca.pem"):
        (tmp_path / name).touch()
    shutil.copy(MONITORING / "keyway-alerts.yaml", tmp_path)
    command = [str(TOOL), "check", "config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        job["job_name"].startswith("keyway") for job in yaml.safe_load(text)["scrape_configs"]
    )
