"""Custom resources: schemas at work, printer columns, versions in order."""

from typing import Any

import pytest

from clusters.embedded.custom.definitions import version_rank
from clusters.embedded.custom.jsonpath import find
from clusters.embedded.custom.structural import apply_defaults, prune, validate
from clusters.embedded.printers.columns import human_duration

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "port": {"x-kubernetes-int-or-string": True},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 2},
                "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "options": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "note": {"type": "string", "nullable": True},
                "inner": {"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 3}}},
            },
        }
    },
}


def spec(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "K", "metadata": {}, "spec": {"size": 1, **fields}}


def test_unknown_fields_are_pruned_where_they_are_not_wanted() -> None:
    unknown: list[str] = []
    kept = prune(
        {**spec(sise=1, extra={"any": {"thing": 1}}, options={"a": True}), "more": 1}, SCHEMA, unknown, root=True
    )
    assert kept == spec(extra={"any": {"thing": 1}}, options={"a": True})
    assert sorted(unknown) == ["more", "spec.sise"]


def test_defaults_are_filled_in_also_inside_defaults() -> None:
    obj = spec(mode=None)
    apply_defaults(obj, SCHEMA)
    assert obj["spec"] == {"size": 1, "mode": "fast", "inner": {"x": 3}}


@pytest.mark.parametrize(
    ("obj", "problems"),
    [
        pytest.param(spec(), [], id="fine"),
        pytest.param(spec(note=None), [], id="nullable"),
        pytest.param(spec(port=1), [], id="a number where a number or a string may be"),
        pytest.param({"metadata": {}}, ["spec: Required value"], id="a required object"),
        pytest.param({"spec": {}}, ["spec.size: Required value"], id="a required field"),
        pytest.param(
            spec(size="1"),
            ['spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'],
            id="a wrong type",
        ),
        pytest.param(
            spec(size=11),
            ["spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"],
            id="too large",
        ),
        pytest.param(
            spec(mode="medium"),
            ['spec.mode: Unsupported value: "medium": supported values: "fast", "slow"'],
            id="not in the list",
        ),
        pytest.param(
            spec(name="A"),
            ["spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'"],
            id="a pattern",
        ),
        pytest.param(spec(tags=["a", "a"]), ['spec.tags[1]: Duplicate value: "a"'], id="a set"),
        pytest.param(spec(tags=["a", "b", "c"]), ["spec.tags: Too many: 3: must have at most 2 items"], id="too many"),
        pytest.param(
            spec(options={"a": "yes"}),
            ['spec.options.a: Invalid value: "string": spec.options.a in body must be of type boolean: "string"'],
            id="a value of a map",
        ),
        pytest.param(
            spec(name=None),
            ['spec.name: Invalid value: "null": spec.name in body must be of type string: "null"'],
            id="null",
        ),
    ],
)
def test_objects_are_held_to_their_schema(obj: dict[str, Any], problems: list[str]) -> None:
    assert [str(problem) for problem in validate(obj, SCHEMA, root=True)] == problems


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".metadata.name", ["a"]),
        ("{.metadata.name}", ["a"]),
        (r".metadata.annotations.example\.com/x", ["y"]),
        (".items[0].v", [1]),
        (".items[*].v", [1, 2]),
        ('.items[?(@.type=="two")].v', [2]),
        (".missing.thing", []),
        (".items[7]", []),
    ],
)
def test_paths_of_printer_columns(path: str, values: list[Any]) -> None:
    obj = {
        "metadata": {"name": "a", "annotations": {"example.com/x": "y"}},
        "items": [{"type": "one", "v": 1}, {"type": "two", "v": 2}],
    }
    assert find(obj, path) == values


def test_versions_are_preferred_by_their_maturity() -> None:
    names = ["v1alpha1", "v2", "v1beta2", "foo", "v10", "v1beta10", "v1"]
    assert sorted(names, key=version_rank) == ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (11 * 60 + 5, "11m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (47 * 3600, "47h"),
        (50 * 3600, "2d2h"),
        (30 * 86400, "30d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_durations_are_shown_as_kubectl_shows_them(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown
