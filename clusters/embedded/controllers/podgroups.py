"""PodGroup protection: a PodGroup that is being deleted stays until no pod that refers to it is running or may run."""

import asyncio
from typing import Final

from clusters.embedded.controllers.client import InProcessClient
from clusters.embedded.kinds import Kind
from clusters.embedded.store import Event
from multimirror.kube import Controller

FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
_REFERENCE: Final = b'"podGroupName"'
_DELETED: Final = b'"deletionTimestamp"'
_TERMINAL: Final = ("Succeeded", "Failed")


class PodGroupProtection:
    """Lets PodGroups go when nobody needs them."""

    def __init__(self, client: InProcessClient) -> None:
        self._client = client
        self._groups, self._pods = client.kind("scheduling.k8s.io", "podgroups"), client.kind("", "pods")
        self.controller = Controller("podgroup-protection", self._reconcile, concurrency=1)
        client.listen(self._changed)

    def start(self) -> None:
        """Take in what is there already."""
        for item in list(self._groups.table.scan()):
            if _DELETED in item.data:
                self.controller.queue.add(item.key)

    def _changed(self, kind: Kind, event: Event) -> None:
        if kind is self._groups:
            if not event.deleted and _DELETED in event.after.data:
                self.controller.queue.add(event.after.key)
        elif kind is self._pods and _REFERENCE in event.after.data and self._groups.table.items:
            pod = event.after.decode()
            if event.deleted or pod.get("status", {}).get("phase") in _TERMINAL:
                self.controller.queue.add(f"{pod['metadata']['namespace']}/{_group_of(pod)}")

    async def _reconcile(self, key: str) -> None:
        await asyncio.sleep(0)
        group = self._client.at(self._groups, key)
        if group is None or not group["metadata"].get("deletionTimestamp"):
            return
        meta = group["metadata"]
        if FINALIZER not in meta.get("finalizers", ()) or self._is_needed(meta["namespace"], meta["name"]):
            return
        left = [each for each in meta["finalizers"] if each != FINALIZER]
        known = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        await self._client.patch(self._groups, group, {"metadata": {"finalizers": left, **known}})

    def _is_needed(self, namespace: str, name: str) -> bool:
        for item in self._pods.table.scan(f"{namespace}/"):
            if _REFERENCE in item.data:
                pod = item.decode()
                if _group_of(pod) == name and pod.get("status", {}).get("phase") not in _TERMINAL:
                    return True
        return False


def _group_of(pod: dict[str, dict[str, dict[str, str]]]) -> str:
    return pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
