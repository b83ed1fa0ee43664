"""Writing the statuses of one kind of ours, sparingly: what has changed, when it is due, and nothing twice.

A status is written in parts, each in a patch of its own, and what becomes of one is nothing to the others: conditions
are told even where numbers are refused. A condition that changed is due at once. Numbers are due a few seconds after
the last write of that part, and of all objects together a few are written in a second: with thousands of queues, those
go first that waited longest. Conditions that tell of numbers (`unhurried`) are due as numbers are; their words alone,
with a number that changes with every Job, once a minute.

Whether the cache shows a write yet is known from the server's answer. A patch that changed nothing there (a field that
its older CRD does not have) leaves the version as it was: then nothing is on its way, and waiting for it would be for
ever. The same patch is not sent again for a while.

A write that failed is counted, logged once for as long as it fails in the same way, and tried again: soon after an
outage, ever more seldom where the server refuses it. It is never given up.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from multimirror.batch import Json
from multimirror.kube import Client, KubeError, Resource
from multimirror.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, LeadershipLost, NotFound
from multimirror.kube.patch import merge_patch
from multimirror.observe import metrics

_log = structlog.get_logger(__name__)

_WRITES_PER_SECOND: Final = 4.0
_BURST_SECONDS: Final = 5.0
"""So many seconds' worth of writes may come at once."""
_REPEAT_SECONDS: Final = 300.0
"""Until a patch is sent again that changed nothing: somebody may have brought the CRD up to date."""
_LONGEST_BACKOFF_SECONDS: Final = 300.0
"""Between two tries of what the server refuses."""
_LONGEST_LOGGED: Final = 500
_REWORD_SECONDS: Final = 60.0
"""Between two writes of an unhurried condition that only has other words."""


@dataclass(frozen=True, slots=True)
class _LastWrite:
    at: float = float("-inf")
    failure: str = ""
    """How it failed; empty: it did not."""
    refusals: int = 0
    """How often in a row the server has said no."""
    replaced_version: str | None = None
    """The version that the cache had: as long as it has it, it does not show what was written."""
    ineffective: tuple[str, Json] | None = None
    """The version that this patch did not change."""


_NEVER: Final = _LastWrite()


class StatusWriter:
    """Times are the event loop's."""

    def __init__(
        self, client: Client, resource: Resource, *, report_seconds: float, unhurried: Collection[str] = ()
    ) -> None:
        """`report_seconds`: the shortest time between two writes of an object, unless a condition changes;
        `unhurried`: the types of conditions that can wait as numbers can."""
        self._client, self._resource, self._report_seconds = client, resource, report_seconds
        self._unhurried = frozenset(unhurried)
        self._last: dict[str, dict[str, _LastWrite]] = {}  # by uid and part
        self._paid_until = float("-inf")

    def in_turn(self, objects: Iterable[Json]) -> list[Json]:
        """Those first whose last write is longest ago. What was known of any others is forgotten."""
        found = {obj["metadata"]["uid"]: obj for obj in objects}
        self._last = {uid: last for uid, last in self._last.items() if uid in found}
        return [found[uid] for uid in sorted(found, key=self._last_at)]

    async def write(self, obj: Json, part: str, wanted: Json) -> bool:
        """The fields of one part of the status (None: it is to go), unless they are there, or it is not due. Whether
        something was written."""
        metadata, before = obj["metadata"], obj.get("status") or {}
        patch = merge_patch(
            {field: before[field] for field in wanted if field in before},
            {field: value for field, value in wanted.items() if value is not None},
        )
        uid, version = metadata["uid"], metadata["resourceVersion"]
        now, parts = asyncio.get_running_loop().time(), self._last.setdefault(uid, {})
        last = parts.get(part, _NEVER)
        if not patch or not self._is_due(patch, before, version, last, now):
            return False
        parts[part] = _LastWrite(now, failure="its fate is unknown")
        body = {"metadata": {"uid": uid}, "status": patch}
        try:
            answer = await self._client.patch(self._resource, metadata["name"], body, subresource="status")
        except (LeadershipLost, NotFound, Conflict) as error:  # nobody's fault, and whoever comes next will know better
            _log.debug("status not written", resource=self._resource.name, name=metadata["name"], error=str(error))
        except KubeError as error:
            parts[part] = self._failed(error, last, now, name=metadata["name"], part=part)
        else:
            if answer["metadata"]["resourceVersion"] == version:
                parts[part] = _LastWrite(now, ineffective=(version, patch))
            else:
                parts[part] = _LastWrite(now, replaced_version=version)
                return True
        return False

    def _failed(self, error: KubeError, last: _LastWrite, now: float, *, name: str, part: str) -> _LastWrite:
        refused = isinstance(error, Invalid | Forbidden | BadRequest)
        reason = type(error).__name__
        metrics.STATUS_WRITE_FAILURES.labels(self._resource.kind, reason).inc()
        if last.failure != reason:
            words = error.message if isinstance(error, ApiError) else str(error)
            log = _log.error if refused else _log.warning
            log("status not written", kind=self._resource.kind, name=name, part=part, error=words[:_LONGEST_LOGGED])
        return _LastWrite(now, failure=reason, refusals=last.refusals + 1 if refused else 0)

    def _last_at(self, uid: str) -> float:
        return max((last.at for last in self._last.get(uid, {}).values()), default=float("-inf"))

    def _is_due(self, patch: Json, before: Json, version: str, last: _LastWrite, now: float) -> bool:
        if last.replaced_version == version:
            return False
        if last.ineffective == (version, patch):
            return now >= last.at + _REPEAT_SECONDS
        pace = self._report_seconds
        if "conditions" in patch and not last.failure:
            if self._is_urgent(patch, before):
                return True
            if self._states(patch["conditions"]) == self._states(before.get("conditions")):
                pace = max(pace, _REWORD_SECONDS)
        wait = pace * 2 ** min(max(0, last.refusals - 1), 10)
        return now >= last.at + min(wait, _LONGEST_BACKOFF_SECONDS) and self._may_spend(now)

    def _is_urgent(self, patch: Json, before: Json) -> bool:
        """Something other than unhurried conditions has changed."""
        hurried = [
            [each for each in conditions or () if each.get("type") not in self._unhurried]
            for conditions in (patch["conditions"], before.get("conditions"))
        ]
        return len(patch) > 1 or hurried[0] != hurried[1]

    def _states(self, conditions: list[Json] | None) -> dict[str, tuple[str, str]]:
        return {
            str(each.get("type")): (str(each.get("status")), str(each.get("reason")))
            for each in conditions or ()
            if each.get("type") in self._unhurried
        }

    def _may_spend(self, now: float) -> bool:
        paid_until = max(self._paid_until, now - _BURST_SECONDS) + 1 / _WRITES_PER_SECOND
        if paid_until > now:
            return False
        self._paid_until = paid_until
        return True
