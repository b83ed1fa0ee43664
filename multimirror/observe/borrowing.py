"""The event `Borrowing` on a queue: once when it begins to, with the words of its condition.

Whether it is news is read off the status: the condition as it was, and as it has just been written. So a restart tells
nothing twice, and numbers that change with every Job are no news. A queue that borrows now and then hears of it every
ten minutes at most.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from multimirror.api import MIRROR_QUEUES
from multimirror.api.mirror_queue_status import BORROWING
from multimirror.batch import Json, find_condition

_PAUSE_SECONDS: Final = 600.0
_MOST_REMEMBERED: Final = 4096
Tell = Callable[[Json, str, str], None]
"""About an object: a reason, and a message."""


class BorrowingEvents:
    """Times are the event loop's."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: dict[str, float] = {}
        """By uid: when."""

    def written(self, queue: Json, status: Json) -> None:
        """These fields of its status are written now; `queue` is as it was before."""
        now, uid = _borrowing(status), queue["metadata"]["uid"]
        if now is None or _borrowing(queue.get("status") or {}) is not None:
            return
        time = asyncio.get_running_loop().time()
        if time < self._told.get(uid, float("-inf")) + _PAUSE_SECONDS:
            return
        self._told.pop(uid, None)
        self._told[uid] = time
        if len(self._told) > _MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        about = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": queue["metadata"]}
        self._tell(about, BORROWING, str(now.get("message", "")))


def _borrowing(status: Json) -> Json | None:
    """The condition, if it holds."""
    found = find_condition(status.get("conditions") or (), BORROWING)
    return found if found is not None and found.get("status") == "True" else None
