"""Sets of field paths in the form of `fieldsV1`: nested objects whose keys are steps.

Steps: `f:name` a field, `k:{"name":"x"}` the list item with those keys, `v:"x"` the item with that value. A node says
what is under it, and by "." that the path to it is in the set as well; an empty node is such a path with nothing under
it. Sets are never changed once made, so parts can be shared.
"""

from collections.abc import Iterator
from typing import Any

import orjson

FieldSet = dict[str, Any]

MEMBER = "."


def is_member(node: FieldSet) -> bool:
    """Whether the path to a node is in the set."""
    return not node or MEMBER in node


def node(member: bool, children: FieldSet) -> FieldSet | None:
    """A node, or None if there is nothing in it."""
    if not children:
        return {} if member else None
    return {MEMBER: {}, **children} if member else children


def children(parent: FieldSet) -> FieldSet:
    """What is under a node."""
    return {step: child for step, child in parent.items() if step != MEMBER} if MEMBER in parent else parent


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths in either set."""
    if not left or not right:
        return left or right
    merged = dict(left)
    for step, theirs in right.items():
        mine = merged.get(step)
        if mine is None:
            merged[step] = theirs
        elif step != MEMBER and mine != theirs:
            member = is_member(mine) or is_member(theirs)
            merged[step] = node(member, union(children(mine), children(theirs)))
    return merged


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths in the first set that are not in the second."""
    if not right:
        return left
    kept: FieldSet = {}
    for step, mine in left.items():
        if step == MEMBER:
            continue
        theirs = right.get(step)
        if theirs is None:
            kept[step] = mine
            continue
        member = is_member(mine) and not is_member(theirs)
        rest = node(member, difference(children(mine), children(theirs)))
        if rest is not None:
            kept[step] = rest
    return kept


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths in both sets."""
    kept: FieldSet = {}
    for step, mine in left.items():
        theirs = right.get(step)
        if theirs is None or step == MEMBER:
            continue
        member = is_member(mine) and is_member(theirs)
        both = node(member, intersection(children(mine), children(theirs)))
        if both is not None:
            kept[step] = both
    return kept


def without_subtree(left: FieldSet, path: tuple[str, ...]) -> FieldSet:
    """The set without a path and all that is under it."""
    first, *rest = path
    if first not in left:
        return left
    kept = {step: child for step, child in left.items() if step != first}
    if rest:
        under = without_subtree(left[first], tuple(rest))
        if under:
            kept[first] = under
    return kept


def paths(under: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path in a set, in the order of conflict messages."""
    for step in sorted(under):
        if step == MEMBER:
            continue
        child = under[step]
        if is_member(child):
            yield (*prefix, step)
        yield from paths(child, (*prefix, step))


def spelled(path: tuple[str, ...]) -> str:
    """`.spec.containers[name="x"].image`."""
    return "".join(_spelled_step(step) for step in path)


def _spelled_step(step: str) -> str:
    kind, _, text = step.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = orjson.loads(text)
        return "[" + ",".join(f"{key}={orjson.dumps(value).decode()}" for key, value in sorted(keys.items())) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"


def item_step(item: Any, keys: tuple[str, ...], defaults: dict[str, Any]) -> str:
    """The step to an item of a list that is a map."""
    found = {}
    for key in sorted(keys):
        value = item.get(key) if isinstance(item, dict) else None
        if value is None:
            value = defaults.get(key)
        if value is not None:
            found[key] = value
    return "k:" + orjson.dumps(found).decode()


def value_step(value: Any) -> str:
    """The step to an item of a list that is a set."""
    return "v:" + orjson.dumps(value).decode()
