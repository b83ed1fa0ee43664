"""Objects against their shapes: which paths an object sets, and which paths differ between two objects."""

from functools import lru_cache
from typing import Any

from clusters.embedded.fields.sets import FieldSet, item_step, node, value_step
from clusters.embedded.schemas import GRANULAR, Anything, Listed, Mapped, Shape, Struct


def is_granular(shape: Shape) -> bool:
    """Whether values of the shape are owned in parts."""
    match shape:
        case Struct(atomic=atomic) | Mapped(atomic=atomic):
            return not atomic
        case Listed(listing=listing):
            return listing != "atomic"
        case Anything(granular=granular):
            return granular
        case _:
            return False


def inner(shape: Shape, key: str) -> Shape:
    """The shape of a member of an object."""
    match shape:
        case Struct():
            return shape.shape_of(key) or GRANULAR
        case Mapped(value=value):
            return value
        case _:
            return GRANULAR


@lru_cache(maxsize=1024)
def key_defaults(shape: Listed) -> dict[str, Any]:
    """Defaults of the keys of a list's items, which stand in for keys that are left out."""
    if not isinstance(shape.item, Struct):
        return {}
    fields = shape.item.fields
    return {key: fields[key].default for key in shape.keys if key in fields and fields[key].default is not None}


def steps(items: list[Any], shape: Listed) -> dict[str, Any]:
    """The items of a granular list by their steps; of duplicates the last."""
    if shape.listing == "set":
        return {value_step(item): item for item in items}
    defaults = key_defaults(shape)
    return {item_step(item, shape.keys, defaults): item for item in items}


def set_of(value: Any, shape: Shape) -> FieldSet:
    """What is under a value that a client applied: every path that it sets."""
    if isinstance(value, dict) and is_granular(shape) and not isinstance(shape, Listed):
        return _set_of_object(value, shape)
    if isinstance(value, list) and isinstance(shape, Listed) and shape.listing != "atomic":
        found = {}
        for step, item in steps(value, shape).items():
            found[step] = node(True, set_of(item, shape.item))
        return found
    return {}


def _set_of_object(value: dict[str, Any], shape: Shape) -> FieldSet:
    found: FieldSet = {}
    for key, each in value.items():
        of = inner(shape, key)
        under = set_of(each, of)
        known = isinstance(shape, Struct) and key in shape.fields
        member = not under or (not known and not isinstance(shape, Anything))
        found["f:" + key] = node(member, under)
    return found


def changed(new: Any, old: Any, shape: Shape) -> FieldSet:
    """What is under a value: paths that are new or have another value than before (None: there was nothing)."""
    if isinstance(new, dict) and is_granular(shape) and not isinstance(shape, Listed):
        return _changed_members(new, old if isinstance(old, dict) else None, shape)
    if isinstance(new, list) and isinstance(shape, Listed) and shape.listing != "atomic":
        before = steps(old, shape) if isinstance(old, list) else {}
        found: FieldSet = {}
        for step, item in steps(new, shape).items():
            was = before.get(step)
            if was is None:
                found[step] = node(True, changed(item, None, shape.item))
            elif was != item and (under := changed(item, was, shape.item)):
                found[step] = under
        return found
    return {}


def _changed_members(new: dict[str, Any], before: dict[str, Any] | None, shape: Shape) -> FieldSet:
    found: FieldSet = {}
    for key, value in new.items():
        was = before.get(key) if before is not None else None
        if was == value:
            continue
        if type(value) is not dict and type(value) is not list:
            found["f:" + key] = {}
            continue
        if was is None and before is not None and _is_always(shape, key):
            was = type(value)()
            if was == value:
                continue
        of = inner(shape, key)
        under = changed(value, was, of)
        if under:
            found["f:" + key] = node(was is None, under)
        elif was is None or not is_granular(of) or type(was) is not type(value):
            found["f:" + key] = {}  # otherwise there are only removals below: nothing is set here
    return found


def _is_always(shape: Shape, key: str) -> bool:
    if not isinstance(shape, Struct):
        return False
    field = shape.fields.get(key)
    if field is None:
        return False
    return field.always or (isinstance(field.shape, Listed) and field.required and not field.drop_zero)


def removed(new: Any, old: Any, shape: Shape) -> FieldSet:
    """What is under a value: paths that were there before and are not any more."""
    if isinstance(old, dict) and is_granular(shape) and not isinstance(shape, Listed):
        after = new if isinstance(new, dict) else {}
        found: FieldSet = {}
        for key, was in old.items():
            value = after.get(key)
            if value is None and key not in after:
                found["f:" + key] = node(True, set_of(was, inner(shape, key)))
            elif value != was and (under := removed(value, was, inner(shape, key))):
                found["f:" + key] = under
        return found
    if isinstance(old, list) and isinstance(shape, Listed) and shape.listing != "atomic":
        now = steps(new, shape) if isinstance(new, list) else {}
        found = {}
        for step, was in steps(old, shape).items():
            if step not in now:
                found[step] = node(True, set_of(was, shape.item))
            elif now[step] != was and (under := removed(now[step], was, shape.item)):
                found[step] = under
        return found
    return {}
