"""Writing the statuses of one kind of ours, sparingly: what has changed, when it is due, and nothing twice.

A condition that changed is due at once. Numbers are due a few seconds after the last write of the same object, and of
all objects together a few are written in a second: with thousands of queues, those go first that waited longest.

Whether the cache shows a write yet is known from the server's answer. A patch that changed nothing there (a field that
its older CRD does not have) leaves the version as it was: then nothing is on its way, and waiting for it would be for
ever. The same patch is not sent again for a while. A write that failed is made good by the next one.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from multimirror.batch import Json
from multimirror.kube import Client, KubeError, Resource
from multimirror.kube.patch import merge_patch

_log = structlog.get_logger(__name__)

_WRITES_PER_SECOND: Final = 4.0
_BURST_SECONDS: Final = 5.0
"""So many seconds' worth of writes may come at once."""
_REPEAT_SECONDS: Final = 300.0
"""Until a patch is sent again that changed nothing: somebody may have brought the CRD up to date."""


@dataclass(frozen=True, slots=True)
class _LastWrite:
    at: float = float("-inf")
    failed: bool = False
    replaced_version: str | None = None
    """The version that the cache had: as long as it has it, it does not show what was written."""
    ineffective: tuple[str, Json] | None = None
    """The version that this patch did not change."""


_NEVER: Final = _LastWrite()


class StatusWriter:
    """Times are the event loop's."""

    def __init__(self, client: Client, resource: Resource, *, report_seconds: float) -> None:
        """`report_seconds`: the shortest time between two writes of an object, unless a condition changes."""
        self._client, self._resource, self._report_seconds = client, resource, report_seconds
        self._last: dict[str, _LastWrite] = {}
        self._paid_until = float("-inf")

    def in_turn(self, objects: Iterable[Json]) -> list[Json]:
        """Those first whose last write is longest ago. What was known of any others is forgotten."""
        found = {obj["metadata"]["uid"]: obj for obj in objects}
        self._last = {uid: last for uid, last in self._last.items() if uid in found}
        return [found[uid] for uid in sorted(found, key=lambda uid: self._last.get(uid, _NEVER).at)]

    async def write(self, obj: Json, status: Json) -> None:
        """Unless there is nothing to write, or it is not due."""
        metadata, patch = obj["metadata"], merge_patch(obj.get("status") or {}, status)
        uid, version = metadata["uid"], metadata["resourceVersion"]
        now = asyncio.get_running_loop().time()
        if not patch or not self._is_due(patch, version, self._last.get(uid, _NEVER), now):
            return
        self._last[uid] = _LastWrite(now, failed=True)
        try:
            answer = await self._client.patch(
                self._resource, metadata["name"], {"metadata": {"uid": uid}, "status": patch}, subresource="status"
            )
        except KubeError as error:
            _log.debug("status not written", resource=self._resource.name, name=metadata["name"], error=str(error))
            return
        if answer["metadata"]["resourceVersion"] == version:
            self._last[uid] = _LastWrite(now, ineffective=(version, patch))
        else:
            self._last[uid] = _LastWrite(now, replaced_version=version)

    def _is_due(self, patch: Json, version: str, last: _LastWrite, now: float) -> bool:
        if last.replaced_version == version:
            return False
        if last.ineffective == (version, patch):
            return now >= last.at + _REPEAT_SECONDS
        if "conditions" in patch and not last.failed:
            return True
        return now >= last.at + self._report_seconds and self._may_spend(now)

    def _may_spend(self, now: float) -> bool:
        paid_until = max(self._paid_until, now - _BURST_SECONDS) + 1 / _WRITES_PER_SECOND
        if paid_until > now:
            return False
        self._paid_until = paid_until
        return True
