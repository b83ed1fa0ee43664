"""Events that the control plane's own controllers tell. The same news again counts up the event that is there."""

import secrets
from collections.abc import Callable
from typing import Final

from clusters.embedded.controllers.client import InProcessClient, Json
from multimirror.kube import ApiError

_REMEMBERED: Final = 4096


class Recorder:
    """Tells events about objects, in the name of one controller."""

    def __init__(self, client: InProcessClient, component: str, now: Callable[[], str]) -> None:
        self._client, self._component, self._now = client, component, now
        self._events = client.kind("", "events")
        self._told: dict[tuple[str, str, str, str], Json] = {}

    async def tell(self, about: Json, kind: str, reason: str, message: str) -> None:
        """Best effort: an event that cannot be kept (its namespace goes) is dropped."""
        meta = about["metadata"]
        key = (meta["uid"], kind, reason, message)
        try:
            told = self._told.pop(key, None)
            self._told[key] = await (self._again(told) if told else self._first(about, kind, reason, message))
        except ApiError:
            self._told.pop(key, None)
        while len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]

    async def _again(self, event: Json) -> Json:
        body = {"count": event["count"] + 1, "lastTimestamp": self._now()}
        return await self._client.patch(self._events, event, body)

    async def _first(self, about: Json, kind: str, reason: str, message: str) -> Json:
        meta, now = about["metadata"], self._now()
        event = {
            "metadata": {"name": f"{meta['name']}.{secrets.token_hex(8)}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        return await self._client.create(self._events, event, meta["namespace"])
