"""Sets of field paths, what changed between objects, and server-side apply's merge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.embedded.fields.applying import merge, prune
from clusters.embedded.fields.comparing import changed, removed, set_of
from clusters.embedded.fields.sets import FieldSet, difference, intersection, node, paths, spelled, union
from clusters.embedded.schemas import builtin

POD = builtin().struct("io.k8s.api.core.v1.Pod")
STEPS = st.sampled_from(["f:a", "f:b", "f:c"])


def as_set(members: frozenset[tuple[str, ...]]) -> FieldSet:
    """A set in the form of fieldsV1 from its paths."""
    firsts = {path[0] for path in members}
    made = {}
    for first in firsts:
        under = as_set(frozenset(path[1:] for path in members if path[0] == first and len(path) > 1))
        made[first] = node((first,) in members, under)
    return made


SETS = st.frozensets(st.lists(STEPS, min_size=1, max_size=3).map(tuple), max_size=6)


@given(SETS, SETS)
def test_the_algebra_of_field_sets_is_that_of_sets_of_paths(
    left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]
) -> None:
    one, other = as_set(left), as_set(right)
    assert set(paths(one)) == left
    assert set(paths(union(one, other))) == left | right
    assert set(paths(difference(one, other))) == left - right
    assert set(paths(intersection(one, other))) == left & right


def test_paths_are_spelled_as_users_read_them() -> None:
    fields = {"f:spec": {"f:containers": {'k:{"name":"x"}': {"f:image": {}}}, "f:finalizers": {'v:"y"': {}}}}
    assert [spelled(path) for path in paths(fields)] == ['.spec.containers[name="x"].image', '.spec.finalizers[="y"]']


def test_what_a_client_applies_is_what_it_sets() -> None:
    wanted = {
        "metadata": {"labels": {"app": "x"}, "finalizers": ["f"]},
        "spec": {
            "containers": [{"name": "a", "command": ["x"], "ports": [{"containerPort": 80}]}],
            "nodeSelector": {"a": "b"},
        },
    }
    assert set_of(wanted, POD) == {
        "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {'v:"f"': {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {
                    ".": {},
                    "f:name": {},
                    "f:command": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                }
            },
            "f:nodeSelector": {},
        },
    }


@pytest.mark.parametrize(
    ("old", "new", "taken", "given_up"),
    [
        pytest.param(
            {"metadata": {}},
            {"metadata": {"labels": {"a": "1"}}},
            {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}},
            {},
            id="a new map is taken with its keys",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1", "b": "1"}}},
            {"metadata": {"labels": {"a": "2"}}},
            {"f:metadata": {"f:labels": {"f:a": {}}}},
            {"f:metadata": {"f:labels": {"f:b": {}}}},
            id="one key changed, one gone",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "a", "image": "1"}]}},
            {"spec": {"containers": [{"name": "a", "image": "2"}]}},
            {"f:spec": {"f:containers": {'k:{"name":"a"}': {"f:image": {}}}}},
            {},
            id="a field of a list's item",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"a": "1"}}},
            {"spec": {"nodeSelector": {"a": "2"}}},
            {"f:spec": {"f:nodeSelector": {}}},
            {},
            id="an atomic map is one value",
        ),
    ],
)
def test_what_a_write_takes_and_gives_up(old: Any, new: Any, taken: FieldSet, given_up: FieldSet) -> None:
    assert changed(new, old, POD) == taken
    assert removed(new, old, POD) == given_up


def test_applied_items_keep_the_clients_order_among_those_of_others() -> None:
    live = {"spec": {"containers": [{"name": "theirs"}, {"name": "b", "image": "1"}]}}
    wanted = {"spec": {"containers": [{"name": "a"}, {"name": "b", "image": "2"}]}}
    merged = merge(live, wanted, POD)
    assert merged["spec"]["containers"] == [{"name": "theirs"}, {"name": "a"}, {"name": "b", "image": "2"}]


def test_what_is_no_longer_applied_goes_and_leaves_the_rest() -> None:
    live = {
        "metadata": {"labels": {"mine": "1", "theirs": "2"}},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
    }
    gone = {"f:metadata": {"f:labels": {"f:mine": {}}}, "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}}}}}
    assert prune(live, gone, POD) == {"metadata": {"labels": {"theirs": "2"}}, "spec": {"containers": [{"name": "b"}]}}
