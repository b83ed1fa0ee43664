"""Server-side apply: a client says which fields it wants; the server merges them in and remembers that they are its.

Fields that the client applied before and left out now go away, unless somebody else owns them too. A field that another
manager owns with another value is a conflict, unless the client forces it. Applying what is there already is no write.
"""

import copy
from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.context import Context
from clusters.embedded.fields.comparing import changed, inner, is_granular, key_defaults, removed, set_of, steps
from clusters.embedded.fields.ownership import Entry, Ownership, identity, keep_entries, stripped
from clusters.embedded.fields.sets import (
    FieldSet,
    children,
    difference,
    intersection,
    is_member,
    item_step,
    paths,
    spelled,
    union,
    value_step,
)
from clusters.embedded.schemas import Listed, Shape
from clusters.embedded.store import Object

_BEFORE: Final[Entry] = {"manager": "before-first-apply", "operation": "Update"}
"""Who owns what was there before anybody's ownership was recorded."""


class Applier:
    """The apply patch."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def apply(self, ctx: Context, live: Object | None, wanted: Object, *, force: bool) -> Object:
        """The object with the client's wishes in it, its managedFields up to date. Raises Conflict."""
        shape = ctx.kind.shape
        mine: Entry = {
            "manager": ctx.request.query["fieldManager"],
            "operation": "Apply",
            "apiVersion": ctx.kind.api_version,
            "subresource": ctx.subresource,
        }
        entries: list[Entry] = (live or {}).get("metadata", {}).get("managedFields") or []
        if live is not None and not entries:
            unknown = _BEFORE | {"apiVersion": ctx.kind.api_version}
            entries = [self._ownership.entry(unknown, stripped(changed(_bare(live), {}, shape)))]
        reset = ctx.kind.strategy.reset_fields(ctx.subresource)
        wants = stripped(set_of(wanted, shape), reset)
        had: FieldSet = {}
        others: FieldSet = {}
        for entry in entries:
            if identity(entry) == identity(mine):
                had = entry.get("fieldsV1") or {}
            else:
                others = union(others, entry.get("fieldsV1") or {})
        base = live or {}
        merged: Object = merge(base, wanted, shape)
        gone = difference(difference(had, wants), others)
        if gone:
            merged = prune(merged, gone, shape)
        before, after = _bare(base), _bare(merged)
        taken = stripped(changed(after, before, shape), reset)
        given = stripped(removed(after, before, shape), reset)
        self._check(entries, mine, taken, force=force)
        lost = union(taken, given)
        left = (self._without(entry, lost) for entry in entries if identity(entry) != identity(mine))
        kept = [entry for entry in left if entry]
        if wants:
            same = next((e for e in entries if identity(e) == identity(mine) and e.get("fieldsV1") == wants), None)
            kept.append(same or self._ownership.entry(mine, wants))
        keep_entries(merged["metadata"], kept)
        return merged

    def _without(self, entry: Entry, lost: FieldSet) -> Entry | None:
        fields = entry.get("fieldsV1") or {}
        after = difference(fields, lost)
        if after == fields:
            return entry
        return self._ownership.entry(entry, after) if after else None

    def _check(self, entries: list[Entry], mine: Entry, taken: FieldSet, *, force: bool) -> None:
        if force:
            return
        conflicts: list[tuple[str, str]] = []
        for entry in entries:
            if identity(entry) == identity(mine):
                continue
            both = intersection(entry.get("fieldsV1") or {}, taken)
            conflicts += [(_named(entry), spelled(path)) for path in paths(both)]
        if not conflicts:
            return
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
            for manager, field in conflicts
        ]
        if len(conflicts) == 1:
            text = f"1 conflict: conflict with {conflicts[0][0]}: {conflicts[0][1]}"
        else:
            blocks = [
                f"conflicts with {manager}:\n" + "\n".join(f"- {field}" for name, field in conflicts if name == manager)
                for manager in sorted({manager for manager, _ in conflicts})
            ]
            text = f"{len(conflicts)} conflicts: " + "\n".join(blocks)
        raise errors.apply_conflict(f"Apply failed with {text}", causes)


def _named(entry: Entry) -> str:
    text = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    if entry.get("operation") == "Update":
        text += f" using {entry.get('apiVersion', '')}"
    return text


def _bare(obj: Object) -> Object:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def merge(live: Any, wanted: Any, shape: Shape) -> Any:
    """The live value with the wanted one laid over it."""
    if isinstance(shape, Listed) and shape.listing != "atomic" and isinstance(wanted, list):
        return _merge_list(live if isinstance(live, list) else [], wanted, shape)
    if not isinstance(wanted, dict) or not is_granular(shape):
        return copy.deepcopy(wanted)
    merged = dict(live) if isinstance(live, dict) else {}
    for key, value in wanted.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value, inner(shape, key))
    return merged


def _merge_list(live: list[Any], wanted: list[Any], shape: Listed) -> list[Any]:
    """Items of both, each once; the wanted ones in their order, live ones where they were among them."""
    wishes, have = steps(wanted, shape), steps(live, shape)
    merged: list[Any] = []
    rest = iter(wishes)
    placed: set[str] = set()
    for step, item in have.items():
        if step not in wishes:
            merged.append(item)
            continue
        if step in placed:
            continue
        for wish in rest:
            placed.add(wish)
            merged.append(merge(have.get(wish), wishes[wish], shape.item))
            if wish == step:
                break
    merged += [merge(have.get(wish), wishes[wish], shape.item) for wish in rest]
    return merged


def prune(value: Any, gone: FieldSet, shape: Shape) -> Any:
    """The value without the paths that are gone, and without the holders that this leaves empty."""
    if isinstance(value, dict):
        kept = {}
        for key, each in value.items():
            node = gone.get("f:" + key)
            if node is None:
                kept[key] = each
            elif not is_member(node) or children(node):
                under = prune(each, children(node), inner(shape, key))
                if under or not is_member(node):
                    kept[key] = under
        return kept
    if isinstance(value, list) and isinstance(shape, Listed):
        defaults = key_defaults(shape)
        items = []
        for item in value:
            step = value_step(item) if shape.listing == "set" else item_step(item, shape.keys, defaults)
            node = gone.get(step)
            if node is None:
                items.append(item)
            elif not is_member(node):
                items.append(prune(item, node, shape.item))
        return items
    return value
