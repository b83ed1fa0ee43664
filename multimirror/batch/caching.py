"""A cache of what was read from texts that somebody else wrote, bounded by the size of the texts.

`functools.lru_cache` counts entries. A status may hold a list of indexes of a mebibyte, and whoever writes statuses
chooses how many different ones: counted by entries, they would fill the memory.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")


class TextCache(Generic[P, V]):
    """A function of a text, called like the function. What was used last stays."""

    def __init__(self, function: Callable[Concatenate[str, P], V], *, characters: int, entries: int = 1024) -> None:
        self._function = function
        self._most_characters, self._most_entries = characters, entries
        self._entries: OrderedDict[tuple[object, ...], tuple[int, V]] = OrderedDict()
        self._characters = 0

    def __call__(self, text: str, /, *args: P.args, **kwargs: P.kwargs) -> V:
        key = (text, *args, *kwargs.items())
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key][1]
        value = self._function(text, *args, **kwargs)
        if len(text) <= self._most_characters:
            self._entries[key] = (len(text), value)
            self._characters += len(text)
            while self._characters > self._most_characters or len(self._entries) > self._most_entries:
                _, (size, _) = self._entries.popitem(last=False)
                self._characters -= size
        return value
