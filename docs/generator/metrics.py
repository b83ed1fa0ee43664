"""Metrics: every counter, gauge and histogram that a module of ours holds."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

import builtin_controller
import multimirror
from docs.generator.markdown import code, table

_OPENING: Final = """# Metrics

For whoever watches a running controller. `multimirror run` shows them at `/metrics` of `--health-address`,
builtin-controller at `--metrics-bind-address`.
How to use them: [monitor](../how-to/monitor.md). A histogram has the series `_bucket`, `_sum` and `_count`.
"""
_TITLES: Final = {
    "multimirror.observe": "The fleet",
    "multimirror.workers": "Workers",
    "multimirror.scheduling": "Scheduling",
    "multimirror.reconcile": "Copies and statuses",
    "multimirror.admission": "Admission",
    "multimirror.kube": "The controller runtime, in every process",
    "builtin_controller": "builtin-controller, under kube-controller-manager's names",
}
_Metric = Counter | Gauge | Histogram


def page() -> str:
    """All of them, by where they come from."""
    parts = [_OPENING]
    found = sorted(_metrics(), key=lambda pair: (list(_TITLES).index(pair[0]), pair[1][0]))
    for room, title in _TITLES.items():
        parts += [
            f"## {title}\n",
            table(["metric", "kind", "labels", ""], [row for where, row in found if where == room]),
        ]
    return "\n".join(parts)


def _metrics() -> Iterator[tuple[str, list[str]]]:
    for package in (multimirror, builtin_controller):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if isinstance(value, _Metric) and not name.startswith("_"):
                    yield _room(info.name), _row(value)


def _room(module: str) -> str:
    return next(room for room in _TITLES if module.startswith(room))


def _row(metric: _Metric) -> list[str]:
    family = next(iter(metric.describe()))
    labels = ", ".join(code(label) for label in metric._labelnames)  # there is no public way to ask
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return [code(name), family.type, labels, family.documentation]
