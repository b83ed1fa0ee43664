"""The JSONPath of printer columns: `.spec.x`, `.a[0]`, `.a[*].b`, `.conditions[?(@.type=="Ready")].status`."""

import re
from functools import lru_cache
from typing import Any, Final

_STEP: Final = re.compile(
    r"""\.?(?P<name>(?:\\.|[^.\[\]\\])+)|\[(?P<index>-?\d+)\]|\[(?P<all>\*)\]|\[['"](?P<quoted>[^'"]+)['"]\]"""
    r"""|\[\?\(@(?P<path>[^=!<>)]+?)\s*(?P<op>==|!=)\s*["']?(?P<value>[^"')]*)["']?\)\]"""
)


def find(obj: Any, path: str) -> list[Any]:
    """All values at a path; a path that cannot be read finds nothing."""
    found = [obj]
    for step in _steps(path):
        found = [value for each in found for value in _follow(each, step)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[dict[str, str], ...]:
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, position = [], 0
    while position < len(path):
        match = _STEP.match(path, position)
        if not match or match.end() == position:
            break
        steps.append({key: value for key, value in match.groupdict().items() if value is not None})
        position = match.end()
    return tuple(steps)


def _follow(value: Any, step: dict[str, str]) -> list[Any]:
    name = step.get("name") or step.get("quoted")
    if name is not None:
        name = re.sub(r"\\(.)", r"\1", name)
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return list(value.values()) if isinstance(value, dict) and "all" in step else []
    if "index" in step:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    if "all" in step:
        return list(value)
    equal = step["op"] == "=="
    return [each for each in value if (_shown(find(each, step["path"])) == step["value"]) is equal]


def _shown(values: list[Any]) -> str:
    if not values:
        return ""
    return str(values[0]).lower() if isinstance(values[0], bool) else str(values[0])
