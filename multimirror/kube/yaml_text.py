"""YAML from people whom we do not know: text that costs no more than it shows.

A few lines of YAML can stand for gigabytes (aliases), for the same mapping merged into itself a thousand times (`<<`),
or for numbers that take seconds to read (`1:1:1:...`). So before anything is built the events of the parser are
counted: no anchors, aliases, tags or merge keys, bounded depth, a bounded number of values. What then is built are
mappings, lists, texts, true, false and null: every other scalar stays the text that it is.
"""

from typing import Any, ClassVar, Final

import yaml

_DEEPEST: Final = 32
_MOST_EVENTS: Final = 5000
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS: Final = {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"}


class _PlainLoader(_Loader):  # type: ignore[misc]
    """Knows no numbers, timestamps and merge keys."""

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class NotPlain(ValueError):  # noqa: N818 - reads better where it is caught
    """It has what costs more than it shows. The text says what."""


def load_plain(text: bytes | str) -> object:
    """Raises NotPlain, yaml.YAMLError or UnicodeDecodeError."""
    _check(text)
    return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - it is a safe loader


def load_own(text: bytes | str) -> object:
    """A person's own file: everything that YAML knows, and quickly. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe loader


def _check(text: bytes | str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if number > _MOST_EVENTS:
            raise NotPlain(f"has more than {_MOST_EVENTS} values")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise NotPlain("has anchors or aliases (&, *); write out what they stand for")
        if getattr(event, "tag", None) is not None:
            raise NotPlain("has tags (!); leave them out")
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            raise NotPlain("has merge keys (<<); write out what they stand for")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise NotPlain(f"is nested deeper than {_DEEPEST}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
