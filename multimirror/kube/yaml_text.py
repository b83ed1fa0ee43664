"""YAML from people whom we do not know: text that costs no more than it shows.

A few lines of YAML can stand for gigabytes (aliases), for the same mapping merged into itself a thousand times (`<<`),
or for numbers that take seconds to read (`1:1:1:...`). So before anything is built the events of the parser are
counted: no anchors, aliases, tags or merge keys, bounded depth, a bounded number of values. What then is built are
mappings, lists, texts, true, false and null: every other scalar stays the text that it is.
"""

from collections.abc import Iterator
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
    """It has what costs more than it shows. The text says what; `line` is where, from 1."""

    def __init__(self, message: str, event: yaml.Event) -> None:
        super().__init__(message)
        self.line = event.start_mark.line + 1 if event.start_mark is not None else 1


def load_plain(text: bytes | str) -> object:
    """Raises NotPlain, yaml.YAMLError or UnicodeDecodeError."""
    _check(text)
    return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - it is a safe loader


def load_plain_documents(text: bytes | str, most_events: int) -> Iterator[object]:
    """The documents of a file that may be long, one after the other. Raises as load_plain does."""
    _check(text, most_events)
    yield from yaml.load_all(text, Loader=_PlainLoader)


def load_own(text: bytes | str) -> object:
    """A person's own file: everything that YAML knows, and quickly. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe loader


def _check(text: bytes | str, most_events: int = _MOST_EVENTS) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if number > most_events:
            raise NotPlain(f"has more than {most_events} values", event)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise NotPlain("has anchors or aliases (&, *); write out what they stand for", event)
        if getattr(event, "tag", None) is not None:
            raise NotPlain("has tags (!); leave them out", event)
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            raise NotPlain("has merge keys (<<); write out what they stand for", event)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise NotPlain(f"is nested deeper than {_DEEPEST}", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
