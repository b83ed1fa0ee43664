"""Strategic merge patches: merge patches that know which lists are maps, by the kind's shape.

Understands merge keys, `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/x`, `$setElementOrder/x` and
`$retainKeys`, which is what kubectl and client libraries send for Jobs, Pods and the other built-in kinds.
"""

import copy
from typing import Any, Final

from clusters.embedded.patches import PatchError
from clusters.embedded.schemas import Field, Listed, Mapped, Shape, Struct

_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"


def strategic_patch(target: Any, patch: Any, shape: Shape) -> Any:
    """The target with the patch applied; neither is changed."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object")
    return _merge(target if isinstance(target, dict) else {}, patch, shape)


def _merge(target: dict[str, Any], patch: dict[str, Any], shape: Shape) -> dict[str, Any]:
    match patch.get("$patch"):
        case "replace":
            return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise PatchError(f"unknown $patch directive {other!r}")
    merged = dict(target)
    if _RETAIN in patch:
        merged = {key: value for key, value in merged.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [each for each in merged.get(name) or () if each not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
            continue
        field, inner = _member(shape, key)
        order = patch.get(_ORDER + key)
        merged[key] = _merge_value(merged.get(key), value, field, inner, order)
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(merged.get(name), list):
            field, _ = _member(shape, name)
            merged[name] = _ordered(merged[name], order, field.merge_key if field else "")
    return merged


def _member(shape: Shape, key: str) -> tuple[Field | None, Shape | None]:
    if isinstance(shape, Struct):
        field = shape.fields.get(key)
        return field, field.shape if field else None
    return None, shape.value if isinstance(shape, Mapped) else None


def _merge_value(current: Any, value: Any, field: Field | None, shape: Shape | None, order: Any) -> Any:
    if isinstance(value, dict):
        holder = current if isinstance(current, dict) else {}
        return _merge(holder, value, shape if shape is not None else Mapped(Struct("")))
    if isinstance(value, list) and field is not None and field.merge_key is not None:
        assert isinstance(shape, Listed)
        base = current if isinstance(current, list) else []
        if field.merge_key == "":
            merged = base + [each for each in value if each not in base]
        else:
            merged = _merge_items(base, value, field.merge_key, shape.item)
        return _ordered(merged, order, field.merge_key) if order is not None else merged
    return copy.deepcopy(value)


def _merge_items(current: list[Any], patch: list[Any], key: str, shape: Shape) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if item.get("$patch") != "replace"]
    merged = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        place = next((i for i, each in enumerate(merged) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [each for each in merged if each.get(key) != item[key]]
        elif place is None:
            merged.append(_merge({}, item, shape))
        else:
            merged[place] = _merge(merged[place], item, shape)
    return merged


def _ordered(items: list[Any], order: Any, key: str | None) -> list[Any]:
    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [name(each) for each in order]
    listed = [item for wish in wanted for item in items if name(item) == wish]
    queue = iter(listed)
    # Items that the client did not list keep their places; the listed ones fill the others in their order.
    return [next(queue) if name(item) in wanted else item for item in items]
