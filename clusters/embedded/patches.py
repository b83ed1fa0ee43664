"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396) on decoded JSON.

Both return a new value and leave the old one alone, so a patch that fails half way changed nothing. PatchError carries
the words; what code they travel under is the caller's matter.
"""

import copy
from typing import Any, Final

_MISSING: Final = object()


class PatchError(ValueError):
    """A patch that does not fit the object; `test` says that a `test` operation failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with a merge patch applied: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """The target with a list of operations applied in order."""
    if not isinstance(operations, list):
        raise PatchError("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise PatchError("jsonpatch operation needs the members 'op' and 'path'")
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation.get("value"))
        case "remove":
            _take(document, path, "remove")
        case "replace":
            _get(document, path, "replace")
            return _set(document, path, _value(operation))
        case "test":
            if _get(document, path, "test", missing=None) != operation.get("value"):
                raise PatchError(f"testing value {operation['path']} failed: test failed")
        case "move":
            return _add(document, path, _take(document, _pointer(operation.get("from", "")), "move"))
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation.get("from", "")), "copy")))
        case unknown:
            raise PatchError(f"unexpected kind: {unknown}")
    return document


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"{operation['op']} operation: missing value for {operation['path']}")
    return operation["value"]


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchError(f"path {path!r} must be empty or start with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(document: Any, path: list[str], operation: str, missing: Any = _MISSING) -> Any:
    found = document
    for part in path:
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and _index(part, found) is not None:
            found = found[_index(part, found)]  # type: ignore[index]  # checked just above
        elif missing is not _MISSING:
            return missing
        else:
            where = "/" + "/".join(path)
            raise PatchError(f"{operation} operation does not apply: doc is missing path: {where}: missing value")
    return found


def _index(part: str, holder: list[Any]) -> int | None:
    try:
        index = int(part)
    except ValueError:
        return None
    if index < 0:
        index += len(holder)
    return index if 0 <= index < len(holder) else None


def _parent(document: Any, path: list[str], operation: str) -> Any:
    return _get(document, path[:-1], operation)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _parent(document, path, "add")
    last = path[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
        elif last.isdigit() and int(last) <= len(parent):
            parent.insert(int(last), value)
        else:
            raise PatchError(f"add operation does not apply: doc is missing path: /{'/'.join(path)}: invalid index")
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError(f"add operation does not apply: doc is missing path: /{'/'.join(path)}: missing value")
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _parent(document, path, "replace")
    parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
    return document


def _take(document: Any, path: list[str], operation: str) -> Any:
    taken = _get(document, path, operation)
    if not path:
        raise PatchError(f"{operation} operation does not apply: the whole document cannot go")
    parent = _parent(document, path, operation)
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return taken
