"""The reference is that of the code: `make reference` would change nothing, and no reason is missing from the table."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generator import pages
from multimirror.api.reasons import CONDITIONS, EVENTS, WAITING
from tests.documents import ROOT

REFERENCE = ROOT / "docs" / "reference"
EVENT_CALLS = {"event": 1, "tell": 2, "tell_once": 2, "Unassign": 0, "Tell": 0}
"""Calls that make an event, and which of their arguments is its reason."""


def test_the_reference_is_current() -> None:
    stored = {path.name: path.read_text() for path in REFERENCE.iterdir()}
    assert stored == pages(), "run `make reference`"


def calls(*folders: str) -> Iterator[tuple[str, ast.Call]]:
    for folder in folders:
        for path in sorted(Path(ROOT / "multimirror" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    function = node.func
                    yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""), node


def text(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def said_in_events() -> set[str]:
    found = set()
    for name, call in calls("reconcile", "scheduling", "kinds"):
        if name in EVENT_CALLS and len(call.args) > EVENT_CALLS[name]:
            found |= set(text(call.args[EVENT_CALLS[name]]))
    return found


def said_of_waiting() -> set[str]:
    found = set()
    for name, call in calls("scheduling"):
        if name in {"PlacementDecision", "replace"}:
            found |= set(text(keyword(call, "reason") or (call.args[1] if len(call.args) > 1 else None)))
        if name == "Objection":
            found |= set(text(call.args[0]))
    return found


def said_of_workers() -> set[str]:
    found = set()
    for name, call in calls("workers"):
        if name == "_lost":
            found |= set(text(call.args[0]))
        if name in {"Target", "WorkerState"}:
            found |= set(text(keyword(call, "reason")))
    return found


@pytest.mark.parametrize(
    ("said", "table"),
    [(said_in_events(), EVENTS), (said_of_waiting(), WAITING)],
    ids=["events", "why a Job waits"],
)
def test_every_reason_is_explained_and_every_explanation_is_of_one(said: set[str], table: dict[str, object]) -> None:
    assert said == set(table)


def test_every_reason_of_a_workers_condition_is_explained() -> None:
    said = said_of_workers()
    assert {"KubeconfigRefused", "SameCluster"} <= said
    assert said - set(CONDITIONS) == set()
