"""A line in which groups take turns: whoever brings thousands waits behind himself, not everybody behind him.

Within a group it is first come, first served; the first of each group comes before the second of any. Every step takes
the same time, however many wait and however many groups there are.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Turns(Generic[K, V]):
    """Keys with a value each, in groups. A key is looked for in its own group."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, OrderedDict[K, V]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def groups(self) -> int:
        """How many groups have somebody in line."""
        return len(self._groups)

    def count(self, group: Hashable) -> int:
        """How many of a group are in line."""
        return len(self._groups.get(group, ()))

    def get(self, group: Hashable, key: K) -> V | None:
        found = self._groups.get(group)
        return found.get(key) if found is not None else None

    def put(self, group: Hashable, key: K, value: V) -> None:
        """At the end of its group; a group that had nobody in line is the last to have its turn."""
        waiting = self._groups.setdefault(group, OrderedDict())
        self._size += key not in waiting
        waiting[key] = value

    def remove(self, group: Hashable, key: K) -> None:
        """It was in line, and is not any more."""
        waiting = self._groups[group]
        del waiting[key]
        self._size -= 1
        if not waiting:
            del self._groups[group]

    def pop(self) -> tuple[K, V]:
        """Whose turn it is."""
        group, waiting = next(iter(self._groups.items()))
        item = waiting.popitem(last=False)
        self._size -= 1
        if waiting:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return item

    def drop_from_largest(self) -> V:
        """The last one of the group that has most in line leaves it. Looks at all groups."""
        group, waiting = max(self._groups.items(), key=lambda item: len(item[1]))
        _, value = waiting.popitem()
        self._size -= 1
        if not waiting:
            del self._groups[group]
        return value

    def clear(self) -> None:
        self._groups.clear()
        self._size = 0
