"""What the users of waiting Jobs have been told already, read off the events themselves.

A dispatcher that begins (after a restart, or because it leads now) asks once, and then says nothing a second time: with
thousands of Jobs in a queue that would be thousands of writes. It is a help: events that are gone are told again.
"""

from typing import Final

import structlog

from multimirror.api import WAITS_FOR_ANNOTATION
from multimirror.kube import Client, KubeError
from multimirror.kube.resources import EVENTS
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.originals import Originals

_log = structlog.get_logger(__name__)
_PAGE: Final = 1000
_PATIENCE: Final = 5.0


async def recall(client: Client, component: str, originals: Originals, memory: Memory) -> None:
    """Note the newest reason that each Job's user was told by `component`."""
    chosen = f"reason=Waiting,reportingComponent={component}"
    try:
        found = await client.list(EVENTS, field_selector=chosen, limit=_PAGE, timeout=_PATIENCE)
    except KubeError as error:
        _log.warning("what was told before could not be read, and is told again", error=str(error))
        return
    for event in sorted(found.items, key=lambda each: each.get("lastTimestamp") or ""):
        uid = event["involvedObject"].get("uid", "")
        told = (event["metadata"].get("annotations") or {}).get(WAITS_FOR_ANNOTATION)
        if told is not None and originals.get(uid) is not None:
            memory.of(uid).told = told
