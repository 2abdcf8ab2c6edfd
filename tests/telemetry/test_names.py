"""Names of telemetry: one file has them, and dashboard, alerts and pages use no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.semconv._incubating.attributes import db_attributes, gen_ai_attributes, rpc_attributes
from opentelemetry.semconv._incubating.metrics import db_metrics, gen_ai_metrics, rpc_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from plannerd.telemetry import names
from plannerd.telemetry.names import METRICS, Attribute, Kind
from tests.telemetry.example import example

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/plannerd.json"
ALERTS = ROOT / "deploy/alerts/plannerd.yaml"

# What Prometheus itself knows, and what stands for something else.
LABELS = {"le", "job", "instance"}
WORDS = {"sum", "by", "rate", "histogram_quantile", "without", "on", "label_values"}


def series() -> dict[str, set[str]]:
    """Every series that there may be, with its labels."""
    found: dict[str, set[str]] = {}
    for metric in METRICS:
        labels = {label.value.replace(".", "_") for label in metric.labels}
        suffixes = ["_bucket", "_sum", "_count"] if metric.kind is Kind.HISTOGRAM else [""]
        for suffix in suffixes:
            found[metric.prometheus + suffix] = labels
    return found


def dashboard_expressions() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]


EXPRESSIONS = [*dashboard_expressions(), *(rule["expr"] for rule in rules())]


def parts(expression: str) -> tuple[set[str], set[str]]:
    """The series and the labels that an expression names."""
    labels: set[str] = set()
    for selector in re.findall(r"\{([^}]*)\}", expression):
        labels |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
    for group in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        labels |= {label.strip() for label in group.split(",")}
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\bby\s*\([^)]*\)|\"[^\"]*\"", " ", expression)
    words = set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS - LABELS
    return words, labels


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_name_what_there_is(expression: str) -> None:
    """Each expression of the dashboard and the alerts is balanced, and names metrics and labels that exist."""
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")
    named, labels = parts(expression)
    known = series()
    assert named
    assert named <= known.keys()
    assert labels <= LABELS.union(*(known[name] for name in named))


def test_expressions_use_every_metric() -> None:
    """Every metric is on the dashboard: what is not looked at need not be measured."""
    used = set().union(*(parts(expression)[0] for expression in dashboard_expressions()))
    for metric in METRICS:
        assert any(name.startswith(metric.prometheus) for name in used), metric.name


def test_alerts_have_what_prometheus_wants() -> None:
    """Each rule has a name of its own, an expression, a time, a severity and texts whose labels its expression has."""
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        texts = " ".join(rule["annotations"].values())
        for label in re.findall(r"\$labels\.(\w+)", texts):
            assert label in parts(rule["expr"])[1]


def test_panels_have_places_of_their_own() -> None:
    """Panels have ids and places of their own, within the 24 columns of Grafana."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_names_are_those_of_the_conventions() -> None:
    """What does not begin with `plannerd.` is a name of the semantic conventions."""
    modules = (rpc_attributes, gen_ai_attributes, db_attributes, error_attributes, server_attributes)
    known = {value for module in modules for name, value in vars(module).items() if name.isupper()}
    for attribute in Attribute:
        assert attribute.value.startswith("plannerd.") or attribute.value in known
    known = {
        value
        for module in (rpc_metrics, gen_ai_metrics, db_metrics)
        for name, value in vars(module).items()
        if name.isupper()
    }
    for metric in METRICS:
        assert metric.name.startswith("plannerd.") or metric.name in known


def test_the_client_uses_the_same_names() -> None:
    """The names in the Python client, which can't import the server's, are the same."""
    text = (ROOT / "clients/python/src/plannerd_client/_tracing.py").read_text("utf-8")
    used = set(re.findall(r'^_[A-Z_]+: Final = "([^"]+)"', text, re.MULTILINE))
    assert used
    assert used <= {attribute.value for attribute in Attribute} | {names.RUN_SPAN}
    assert f'f"{names.AGENT_SPAN} {{context.agent}}"' in text


def test_names_are_written_once() -> None:
    """No other file of the server writes a name of telemetry by itself."""
    every = {attribute.value for attribute in Attribute if "." in attribute.value} | {metric.name for metric in METRICS}
    for path in (ROOT / "server/plannerd").rglob("*.py"):
        if path.name != "names.py":
            written = set(re.findall(r'"([a-z_]+(?:\.[a-z_]+)+)"', path.read_text("utf-8")))
            assert not written & every, path


def test_the_page_has_the_tables() -> None:
    """docs/telemetry.md has the tables of spans, attributes and metrics as names.py makes them."""
    page = (ROOT / "docs/telemetry.md").read_text("utf-8")
    for table in (names.span_table(), names.attribute_table(), names.metric_table()):
        assert table in page
    for rule in rules():
        assert f"`{rule['alert']}`" in page


def test_the_example_is_real() -> None:
    """The trace on the page about reading a decision is that of a real run."""
    assert f"```text\n{example()}\n```" in (ROOT / "docs/reading-a-decision.md").read_text("utf-8")
