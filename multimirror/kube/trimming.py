"""Making objects smaller before they are kept. A cache holds thousands of them, and most of their text is the same.

`compact`, the informer's default, drops managedFields (often half of an object, and of no use to a controller) and
keeps one copy of equal short strings: images, labels, policies and settings repeat from Job to Job. That takes a third
off what a cached Job costs (see bench/kube.py).
"""

from typing import Any, Final

from .resource import Object

_LONGEST: Final = 64
_MOST: Final = 50_000
_NEVER_TWICE: Final = frozenset({"uid", "resourceVersion"})

_MAPPING, _ENTRY, _LIST, _POINTER, _TEXT, _NUMBER = 64, 48, 56, 8, 56, 32

_strings: dict[str, str] = {}


def drop_managed_fields(obj: Object) -> Object:
    """Without managedFields. Changes the object in place."""
    obj["metadata"].pop("managedFields", None)
    return obj


def compact(obj: Object) -> Object:
    """Without managedFields, and with equal strings shared. Changes the object in place."""
    drop_managed_fields(obj)
    # Not sys.intern: some versions of Python never free what was interned, and names and uids never come again.
    if len(_strings) > _MOST:
        _strings.clear()
    _share_in_mapping(obj)
    return obj


def _share_in_mapping(mapping: dict[str, Any]) -> None:
    for key, value in mapping.items():
        kind = type(value)
        if kind is str:
            if len(value) <= _LONGEST and key not in _NEVER_TWICE:
                mapping[key] = _strings.setdefault(value, value)
        elif kind is dict:
            _share_in_mapping(value)
        elif kind is list:
            _share_in_list(value)


def _share_in_list(values: list[Any]) -> None:
    for index, value in enumerate(values):
        kind = type(value)
        if kind is str:
            if len(value) <= _LONGEST:
                values[index] = _strings.setdefault(value, value)
        elif kind is dict:
            _share_in_mapping(value)
        elif kind is list:
            _share_in_list(value)


def weight(value: Any) -> int:
    """About how many bytes of memory this takes, counted generously: shared strings count each time."""
    kind = type(value)
    if kind is str:
        return _TEXT + len(value)
    if kind is dict:
        return sum([_ENTRY + len(key) + weight(each) for key, each in value.items()], start=_MAPPING)
    if kind is list:
        return sum([_POINTER + weight(each) for each in value], start=_LIST)
    return _NUMBER
