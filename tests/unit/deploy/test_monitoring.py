"""The dashboard and the alerts ask for metrics that exist, in PromQL that parses; every alert is explained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import REGISTRY

import builtin_controller.metrics
import multimirror.admission.server
import multimirror.kube.metrics
import multimirror.observe.metrics
import multimirror.reconcile.metrics
import multimirror.scheduling.metrics

FILES = Path(__file__).parents[3] / "deploy" / "helm" / "multimirror" / "files"
DOCS = Path(__file__).parents[3] / "docs"
MODULES = (
    builtin_controller.metrics,
    multimirror.admission.server,
    multimirror.kube.metrics,
    multimirror.observe.metrics,
    multimirror.reconcile.metrics,
    multimirror.scheduling.metrics,
)
LABELS_OF_PROMETHEUS = {"job", "instance", "pod", "namespace", "le"}


def registered() -> dict[str, set[str]]:
    """The series of every metric that our processes have, with their labels."""
    found: dict[str, set[str]] = {}
    for collector, names in REGISTRY._collector_to_names.items():
        labels = set(getattr(collector, "_labelnames", ()))
        for name in names:
            found[name] = labels
    return found


def selectors(expression: Any) -> Iterator[tuple[str, set[str]]]:
    """The metrics in an expression, each with the labels that it is narrowed by."""
    found = expression.vector_selector if isinstance(expression, promql.MatrixSelector) else expression
    if isinstance(found, promql.VectorSelector):
        assert found.name is not None
        yield found.name, {matcher.name for matcher in found.matchers.matchers}
    for field in ("lhs", "rhs", "expr", "param"):
        inner = getattr(expression, field, None)
        if inner is not None and not isinstance(inner, str):
            yield from selectors(inner)
    for inner in getattr(expression, "args", ()):
        yield from selectors(inner)


def groups() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    return loaded


def alerts() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def board() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


EXPRESSIONS = [
    *(pytest.param(alert["expr"], id=alert["alert"]) for alert in alerts()),
    *(pytest.param(target["expr"], id=panel["title"]) for panel in panels() for target in panel["targets"]),
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_asks_for_metrics_and_labels_that_exist(text: str) -> None:
    assert MODULES
    known = registered()
    plain = text.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$worker", ".*")
    found = list(selectors(promql.parse(plain)))
    assert found
    for name, labels in found:
        assert name in known, f"there is no metric {name}"
        assert labels <= known[name] | LABELS_OF_PROMETHEUS
    for grouping in re.findall(r"\b(?:by|on) \(([^)]*)\)", text):
        for label in re.split(r",\s*", grouping):
            assert any(label in known[name] | LABELS_OF_PROMETHEUS for name, _ in found), label


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]


def test_every_alert_is_explained_with_its_remedy() -> None:
    text = (DOCS / "monitoring.md").read_text()
    explained = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert explained == [alert["alert"] for alert in alerts()]


def test_no_two_panels_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    assert len({panel["id"] for panel in board()["panels"]}) == len(board()["panels"])
