"""Namespace deletion: a namespace that terminates loses its content, then itself. Every namespace gets its defaults.

What is left (pods in their grace period, objects held by finalizers) is told in the namespace's conditions, and
looked at again when something in it goes, not on a timer.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Final

from clusters.embedded.controllers.client import InProcessClient, Json
from clusters.embedded.kinds import Kind
from clusters.embedded.store import Event
from multimirror.kube import Controller
from multimirror.kube.errors import AlreadyExists

_DELETED: Final = b'"deletionTimestamp"'
_FINALIZERS: Final = b'"finalizers":['
_MOMENT: Final = 0.02


class NamespaceController:
    """Empties and removes namespaces that are being deleted."""

    def __init__(self, client: InProcessClient, now: Callable[[], str]) -> None:
        self._client, self._now = client, now
        self._namespaces = client.kind("", "namespaces")
        self._terminating: set[str] = set()
        self.controller = Controller("namespace", self._reconcile, concurrency=1)
        client.listen(self._changed)

    def start(self) -> None:
        """Take in what is there already."""
        for item in list(self._namespaces.table.scan()):
            if _DELETED in item.data:
                self._terminating.add(item.key)
            self.controller.queue.add(item.key)

    def _changed(self, kind: Kind, event: Event) -> None:
        if kind is self._namespaces:
            name = event.after.key
            if event.deleted:
                self._terminating.discard(name)
            elif _DELETED in event.after.data:
                self._terminating.add(name)
                self.controller.queue.add(name)
            elif event.before is None:
                self.controller.queue.add(name)
        elif self._terminating and kind.namespaced:
            namespace = event.after.key.partition("/")[0]
            if namespace in self._terminating:  # one look for all that goes in the next moment
                self.controller.queue.add_after(namespace, _MOMENT)

    async def _reconcile(self, name: str) -> None:
        await asyncio.sleep(0)
        namespace = self._client.at(self._namespaces, name)
        if namespace is None:
            return
        if not namespace["metadata"].get("deletionTimestamp"):
            await self._furnish(name)
            return
        if "kubernetes" not in namespace["spec"].get("finalizers", ()):
            return
        await self._empty(name)
        counts, finalizers = self._remaining(name)
        namespace = self._client.at(self._namespaces, name) or namespace
        if counts:
            await self._tell(namespace, counts, finalizers)
            return
        namespace["spec"]["finalizers"] = [each for each in namespace["spec"]["finalizers"] if each != "kubernetes"]
        await self._client.replace(self._namespaces, namespace, "finalize")

    async def _furnish(self, name: str) -> None:
        """What pods of every namespace count on."""
        accounts = self._client.kind("", "serviceaccounts")
        if self._client.get(accounts, name, "default") is None:
            with contextlib.suppress(AlreadyExists):
                await self._client.create(accounts, {"metadata": {"name": "default"}}, name)

    async def _empty(self, namespace: str) -> None:
        for kind in self._client.stored():
            if not kind.namespaced or "delete" not in kind.verbs:
                continue
            for item in list(kind.table.scan(f"{namespace}/")):
                if _DELETED in item.data and "deletionTimestamp" in item.decode()["metadata"]:
                    continue
                await self._client.delete(kind, item.decode())
                await asyncio.sleep(0)  # a large namespace must not keep others waiting

    def _remaining(self, namespace: str) -> tuple[Counter[str], Counter[str]]:
        counts: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for kind in self._client.stored():
            if kind.namespaced and "delete" in kind.verbs:
                for item in kind.table.scan(f"{namespace}/"):
                    counts[kind.resource if kind.group else f"{kind.plural}."] += 1
                    if _FINALIZERS in item.data:
                        finalizers.update(item.decode()["metadata"].get("finalizers", ()))
        return counts, finalizers

    async def _tell(self, namespace: Json, counts: Counter[str], finalizers: Counter[str]) -> None:
        now = self._now()
        conditions = [
            _condition(namespace, kind, verdict, now)
            for kind, verdict in (
                ("NamespaceDeletionDiscoveryFailure", ("False", "ResourcesDiscovered", _DISCOVERED)),
                ("NamespaceDeletionGroupVersionParsingFailure", ("False", "ParsedGroupVersions", _PARSED)),
                ("NamespaceDeletionContentFailure", ("False", "ContentDeleted", _DELETED_ALL)),
                ("NamespaceContentRemaining", _content(counts)),
                ("NamespaceFinalizersRemaining", _finalizers(finalizers)),
            )
        ]
        if conditions != namespace["status"].get("conditions"):
            namespace["status"] = {**namespace["status"], "conditions": conditions}
            await self._client.replace(self._namespaces, namespace, "status")


_DISCOVERED: Final = "All resources successfully discovered"
_PARSED: Final = "All legacy kube types successfully parsed"
_DELETED_ALL: Final = "All content successfully deleted, may be waiting on finalization"


def _content(counts: Counter[str]) -> tuple[str, str, str]:
    listed = ", ".join(f"{resource} has {count} resource instances" for resource, count in sorted(counts.items()))
    return "True", "SomeResourcesRemain", f"Some resources are remaining: {listed}"


def _finalizers(finalizers: Counter[str]) -> tuple[str, str, str]:
    if not finalizers:
        return "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"
    listed = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    return "True", "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {listed}"


def _condition(namespace: Json, kind: str, verdict: tuple[str, str, str], now: str) -> Json:
    status, reason, message = verdict
    current: Json = next((c for c in namespace["status"].get("conditions", ()) if c["type"] == kind), {})
    since = current["lastTransitionTime"] if current.get("status") == status else now
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
