"""Merge, JSON and strategic merge patches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.embedded.patches import PatchError, json_patch, merge_patch
from clusters.embedded.schemas import builtin
from clusters.embedded.strategic import strategic_patch

JOB = builtin().struct("io.k8s.api.batch.v1.Job")
POD = builtin().struct("io.k8s.api.core.v1.Pod")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="a value is replaced"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="objects merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="nulls in a new object vanish"),
    ],
)
def test_merge_patches(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(JSON, JSON)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        pytest.param([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}, id="add a member"),
        pytest.param([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3]}, id="append"),
        pytest.param([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2]}, id="insert"),
        pytest.param([{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove an item"),
        pytest.param([{"op": "replace", "path": "/a", "value": 0}], {"a": 0}, id="replace"),
        pytest.param([{"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}, id="move"),
        pytest.param([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}, id="copy"),
        pytest.param([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": [1, 2], "x/y~z": 1}, id="escaped names"),
    ],
)
def test_json_patches(operations: Any, result: Any) -> None:
    before = {"a": [1, 2]}
    assert json_patch(before, operations) == result
    assert before == {"a": [1, 2]}, "the target is left alone"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "replace", "path": "/missing", "value": 2},
        {"op": "remove", "path": "/missing"},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "dance", "path": "/a"},
        {"op": "add", "path": "no/slash", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_is_an_error(operation: Any) -> None:
    with pytest.raises(PatchError):
        json_patch({"a": 1}, [operation])


def containers(*items: Any) -> Any:
    return {"spec": {"containers": list(items)}}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param(
            containers({"name": "a", "image": "1"}, {"name": "b", "image": "1"}),
            containers({"name": "b", "image": "2"}),
            containers({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
            id="a list with a merge key is a map",
        ),
        pytest.param(
            containers({"name": "a"}, {"name": "b"}),
            containers({"$patch": "delete", "name": "a"}),
            containers({"name": "b"}),
            id="an item is deleted by directive",
        ),
        pytest.param(
            containers({"name": "a"}),
            {"spec": {"containers": [{"name": "b"}, {"$patch": "replace"}]}},
            containers({"name": "b"}),
            id="a list is replaced by directive",
        ),
        pytest.param(
            containers({"name": "a"}, {"name": "b"}),
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            containers({"name": "b"}, {"name": "a"}),
            id="an order is set",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"finalizers": ["z", "x"]}},
            {"metadata": {"finalizers": ["x", "y", "z"]}},
            id="a list of scalars that merges is a set",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}},
            {"metadata": {"finalizers": ["y"]}},
            id="a scalar is deleted from a list",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}},
            id="only the retained keys stay",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            id="a list without a merge key is replaced",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
            {"metadata": {"labels": {"c": "3"}}},
            id="a map is replaced by directive",
        ),
    ],
)
def test_strategic_merge_patches(target: Any, patch: Any, result: Any) -> None:
    assert strategic_patch(target, patch, POD) == result


def test_conditions_of_a_job_merge_by_type() -> None:
    status = {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    merged = strategic_patch(status, patch, JOB)
    assert [each["type"] for each in merged["status"]["conditions"]] == ["Suspended", "Complete"]


def test_an_item_without_its_merge_key_is_refused() -> None:
    with pytest.raises(PatchError, match="does not contain declared merge key: name"):
        strategic_patch({}, containers({"image": "x"}), POD)
