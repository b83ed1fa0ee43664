"""What becomes of an object when its owners change: the garbage collector's decisions, as Kubernetes makes them.

Pure: `decide` is given an object, its dependents, and a way to look owners up; it returns what to do about *this*
object. The shell (`garbage.py`) finds out whose turn it is. Every action names the uid it is meant for, so that one
carried out late never hits a newer object of the same name.

* An owner reference holds only if the owner exists with that uid, in the same namespace (or belongs to the cluster).
* No owner left: the object is deleted. Some left: the references to the others are dropped.
* Foreground: an owner that waits for its dependents (finalizer `foregroundDeletion`) counts as gone for them; it goes
  when no dependent that blocks it is left. Orphan: references are dropped first, then the finalizer.
* A reference that cannot be resolved (kind unknown, or a cluster's object owned by a namespace's) decides nothing:
  the object stays.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

Json = dict[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


class Unresolvable(Exception):  # noqa: N818 - an answer of the look-up, not a fault
    """Nobody can say whether this owner exists."""


class FindOwner(Protocol):
    def __call__(self, reference: Json, namespace: str) -> Json | None:
        """What the reference's kind and name mean to a dependent of that namespace; None if there is nothing."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object."""

    propagation: Propagation


@dataclass(frozen=True, slots=True)
class DropOwners:
    """Drop the references to these owners from the object, or from a dependent of it."""

    owners: frozenset[str]
    dependent: str | None = None
    """The dependent's uid; None for the object itself."""


@dataclass(frozen=True, slots=True)
class Unblock:
    """Let the object's owners go without it: breaks a circle of objects that wait for each other."""


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """The object's dependents are dealt with: let it go."""

    finalizer: str


Action = Delete | DropOwners | Unblock | DropFinalizer


def decide(obj: Json, dependents: Iterable[Json], find: FindOwner) -> list[Action]:
    """The actions that the object needs now, in order.

    `dependents`: the objects that refer to it by uid. There may be many, so no more of them are looked at than needed.
    """
    meta = obj["metadata"]
    finalizers = meta.get("finalizers", ())
    if meta.get("deletionTimestamp"):
        if ORPHAN in finalizers:
            freed = [DropOwners(frozenset([meta["uid"]]), dependent["metadata"]["uid"]) for dependent in dependents]
            return [*freed, DropFinalizer(ORPHAN)]
        if FOREGROUND in finalizers and not any(_blocks(dependent, meta["uid"]) for dependent in dependents):
            return [DropFinalizer(FOREGROUND)]
        return []
    references = meta.get("ownerReferences", ())
    if not references:
        return []
    try:
        return _by_owners(obj, references, dependents, find)
    except Unresolvable:
        return []


def waits_for_dependents(obj: Json) -> bool:
    """Whether it is being deleted in the foreground."""
    meta = obj["metadata"]
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in meta.get("finalizers", ())


def _by_owners(obj: Json, references: Sequence[Json], dependents: Iterable[Json], find: FindOwner) -> list[Action]:
    namespace = obj["metadata"].get("namespace", "")
    solid = False
    gone: set[str] = set()
    waiting: set[str] = set()
    for reference in references:
        owner = find(reference, namespace)
        if owner is None or owner["metadata"]["uid"] != reference["uid"]:
            gone.add(reference["uid"])
        elif waits_for_dependents(owner):
            waiting.add(reference["uid"])
        else:
            solid = True
    if solid:
        return [DropOwners(frozenset(gone | waiting))] if gone or waiting else []
    if waiting and any(True for _ in dependents):
        circle: list[Action] = [Unblock()] if any(waits_for_dependents(dependent) for dependent in dependents) else []
        return [*circle, Delete("Foreground")]
    finalizers = obj["metadata"].get("finalizers", ())
    if ORPHAN in finalizers:
        return [Delete("Orphan")]
    return [Delete("Foreground" if FOREGROUND in finalizers else "Background")]


def _blocks(dependent: Json, owner_uid: str) -> bool:
    return any(
        reference["uid"] == owner_uid and reference.get("blockOwnerDeletion")
        for reference in dependent["metadata"].get("ownerReferences", ())
    )


def without_owners(obj: Json, owners: frozenset[str]) -> list[Json]:
    """The owner references that stay."""
    return [ref for ref in obj["metadata"].get("ownerReferences", ()) if ref["uid"] not in owners]


def finder(look_up: Callable[[str, str, str, str], Json | None]) -> FindOwner:
    """A `FindOwner` from `look_up(api_version, kind, namespace, name)`."""

    def find(reference: Json, namespace: str) -> Json | None:
        return look_up(reference["apiVersion"], reference["kind"], namespace, reference["name"])

    return find
