"""The garbage collector's decisions, as a table: an object, its owners, its dependents in; what happens to it out."""

from typing import Any

import pytest

from clusters.embedded.controllers import ownership
from clusters.embedded.controllers.ownership import Action, Delete, DropFinalizer, DropOwners, Unblock

Json = dict[str, Any]


def thing(
    uid: str, *owners: str, blocks: bool = True, deleting: bool = False, finalizers: tuple[str, ...] = ()
) -> Json:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "blockOwnerDeletion": blocks}
        for owner in owners
    ]
    return {
        "metadata": {
            "name": uid,
            "namespace": "default",
            "uid": uid,
            "ownerReferences": references,
            "finalizers": list(finalizers),
            **({"deletionTimestamp": "2026-11-16T10:00:00Z"} if deleting else {}),
        }
    }


def world(*objects: Json) -> ownership.FindOwner:
    by_name = {obj["metadata"]["name"]: obj for obj in objects}

    def look_up(_version: str, kind: str, namespace: str, name: str) -> Json | None:
        if kind != "ConfigMap":
            raise ownership.Unresolvable
        return by_name.get(name) if namespace == "default" else None

    return ownership.finder(look_up)


WAITING = thing("waiting", deleting=True, finalizers=("foregroundDeletion",))
LEAVING = thing("leaving", deleting=True, finalizers=("example.com/held",))


@pytest.mark.parametrize(
    ("obj", "dependents", "others", "expected"),
    [
        pytest.param(thing("a"), [], [], [], id="no owners: nobody's business"),
        pytest.param(thing("a", "o"), [], [thing("o")], [], id="its owner is there"),
        pytest.param(thing("a", "o"), [], [], [Delete("Background")], id="its owner is gone"),
        pytest.param(
            thing("a", "o", "p"), [], [thing("p")], [DropOwners(frozenset("o"))], id="one of two owners is gone"
        ),
        pytest.param(thing("a", "o", "p"), [], [], [Delete("Background")], id="all owners are gone"),
        pytest.param(thing("a", "leaving"), [], [LEAVING], [], id="an owner held by a finalizer still counts"),
        pytest.param(thing("a", "waiting"), [], [WAITING], [Delete("Background")], id="its owner waits for it"),
        pytest.param(
            thing("a", "waiting"),
            [thing("b", "a")],
            [WAITING],
            [Delete("Foreground")],
            id="and it has dependents itself",
        ),
        pytest.param(
            thing("a", "waiting", "p"),
            [],
            [WAITING, thing("p")],
            [DropOwners(frozenset({"waiting"}))],
            id="one owner waits for it, another wants it",
        ),
        pytest.param(
            thing("a", "waiting"),
            [thing("waiting", "a", deleting=True, finalizers=("foregroundDeletion",))],
            [WAITING],
            [Unblock(), Delete("Foreground")],
            id="a circle that waits for itself is broken",
        ),
        pytest.param(
            thing("a", "o", finalizers=("orphan",)), [], [], [Delete("Orphan")], id="a wish to orphan is kept"
        ),
        pytest.param(thing("a", "o", deleting=True), [], [], [], id="already on its way"),
        pytest.param(
            thing("a", deleting=True, finalizers=("foregroundDeletion",)),
            [thing("b", "a")],
            [],
            [],
            id="foreground: waits for a dependent that blocks",
        ),
        pytest.param(
            thing("a", deleting=True, finalizers=("foregroundDeletion",)),
            [thing("b", "a", blocks=False)],
            [],
            [DropFinalizer("foregroundDeletion")],
            id="foreground: does not wait for one that does not block",
        ),
        pytest.param(
            thing("a", deleting=True, finalizers=("orphan",)),
            [thing("b", "a"), thing("c", "a")],
            [],
            [DropOwners(frozenset("a"), "b"), DropOwners(frozenset("a"), "c"), DropFinalizer("orphan")],
            id="orphan: dependents are set free, then it goes",
        ),
    ],
)
def test_an_object_and_its_owners(
    obj: Json, dependents: list[Json], others: list[Json], expected: list[Action]
) -> None:
    assert ownership.decide(obj, dependents, world(*others)) == expected


def test_an_owner_of_the_same_name_but_another_uid_is_not_the_owner() -> None:
    impostor = thing("o")
    impostor["metadata"]["uid"] = "someone-else"
    assert ownership.decide(thing("a", "o"), [], world(impostor)) == [Delete("Background")]


def test_an_owner_in_another_namespace_is_no_owner() -> None:
    stranger = thing("a", "o")
    stranger["metadata"]["namespace"] = "elsewhere"
    assert ownership.decide(stranger, [], world(thing("o"))) == [Delete("Background")]


def test_an_owner_of_an_unknown_kind_keeps_the_object() -> None:
    odd = thing("a", "o")
    odd["metadata"]["ownerReferences"][0]["kind"] = "Martian"
    assert ownership.decide(odd, [], world()) == []
