"""Label and field selectors: from the query string to a test of a stored item.

Raises ValueError with the words that the API server would use; which fields can be selected is the kind's matter.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from multimirror.batch.errors import quote
from multimirror.batch.names import label_value, qualified_name

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_SET: Final = re.compile(r"\s*([^\s,=!()<>]+)\s+(in|notin)\s*\(([^)]*)\)\s*")
_EXISTS: Final = re.compile(r"\s*(!?)\s*([^\s,=!()<>]+)\s*")
_EQUAL: Final = re.compile(r"\s*([^\s,=!()<>]+)\s*(==|=|!=)\s*([^\s,=!()<>]*)\s*")
_ORDER: Final = re.compile(r"\s*([^\s,=!()<>]+)\s*([<>])\s*(-?\d+)\s*")


def _everything(_labels: Labels) -> bool:
    return True


@lru_cache(maxsize=1024)
def label_selector(text: str) -> LabelTest:
    """A test for a `labelSelector` parameter."""
    tests: list[LabelTest] = []
    position = 0
    while position < len(text) and text.strip():
        for pattern, make in ((_SET, _in_set), (_EQUAL, _equal), (_ORDER, _ordered), (_EXISTS, _exists)):
            match = pattern.match(text, position)
            if match and (match.end() == len(text) or text[match.end()] == ","):
                tests.append(make(match))
                position = match.end() + 1
                break
        else:
            raise ValueError(
                f"unable to parse requirement: found '{text[position:]}', expected: identifier, or operator"
            )
    return _all(tests)


def _all(tests: list[LabelTest]) -> LabelTest:
    if not tests:
        return _everything
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _key(text: str) -> str:
    if complaints := qualified_name(text):
        raise ValueError(f"unable to parse requirement: <nil>: Invalid value: {quote(text)}: {'; '.join(complaints)}")
    return text


def _value(key: str, text: str) -> str:
    if complaints := label_value(text):
        where = f"values[0][{key}]: Invalid value: {quote(text)}"
        raise ValueError(f"unable to parse requirement: {where}: {'; '.join(complaints)}")
    return text


def _in_set(match: re.Match[str]) -> LabelTest:
    key = _key(match[1])
    values = frozenset(_value(key, each.strip()) for each in match[3].split(","))
    if match[2] == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _equal(match: re.Match[str]) -> LabelTest:
    key = _key(match[1])
    value = _value(key, match[3])
    if match[2] == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists(match: re.Match[str]) -> LabelTest:
    key = _key(match[2])
    if match[1]:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _ordered(match: re.Match[str]) -> LabelTest:
    key, bound, greater = _key(match[1]), int(match[3]), match[2] == ">"

    def test(labels: Labels) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if greater else value < bound

    return test


@lru_cache(maxsize=1024)
def field_selector(text: str) -> tuple[tuple[str, bool, str], ...]:
    """A `fieldSelector` parameter as (field, is it equality, value)."""
    requirements = []
    for term in re.findall(r"(?:\\.|[^,\\])+", text):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if not match:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
        requirements.append((match[1], match[2] != "!=", re.sub(r"\\([,=\\])", r"\1", match[3])))
    return tuple(requirements)
