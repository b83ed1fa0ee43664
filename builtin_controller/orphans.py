"""Tracking finalizers that nobody else will take off: of pods without a Job, or whose Job is gone or finished.

A key is one pod (`pod ns/name`) or everything that a finished or deleted Job selected (`selector ns {...}`).
A pod that the Job's last sync has freed is left alone, though the cache may not show that yet.
"""

import orjson

from builtin_controller.acting import Actor
from builtin_controller.claiming import REMOVE_FINALIZER
from builtin_controller.ledger import Ledger
from builtin_controller.memory import Memory
from builtin_controller.options import Options
from builtin_controller.pods import Pod, controller_of
from multimirror.batch import Json, is_finished
from multimirror.kube import Informer
from multimirror.kube.errors import NotFound


def pod_key(pod: Pod) -> str:
    return f"pod {pod.namespace}/{pod.name}"


def selector_key(job: Json) -> str:
    """All pods that a Job selects."""
    selector = orjson.dumps((job.get("spec") or {}).get("selector"), option=orjson.OPT_SORT_KEYS).decode()
    return f"selector {job['metadata']['namespace']} {selector}"


class Orphans:
    """Frees pods that wait for a Job which will not come."""

    def __init__(  # noqa: PLR0917 - the controller's parts, by their names
        self, jobs: Informer, pods: Informer, ledger: Ledger, memory: Memory, actor: Actor, options: Options
    ) -> None:
        self._jobs = jobs
        self._pods = pods
        self._ledger = ledger
        self._memory = memory
        self._actor = actor
        self._options = options

    async def sync(self, key: str) -> None:
        """Free the pod, or the pods, of this key; what fails is tried again, since no event need come to say so."""
        kind, _, rest = key.partition(" ")
        if kind == "pod":
            raw = self._pods.get(rest)
            pods = [Pod(raw)] if raw is not None else []
        else:
            namespace, _, selector = rest.partition(" ")
            pods = self._ledger.tracked(namespace, orjson.loads(selector))
        for _, error in await self._free(pods):
            raise error

    async def _free(self, pods: list[Pod]) -> list[tuple[Pod, Exception]]:
        orphans = [pod for pod in pods if pod.tracked and self._orphaned(pod)]
        failed = await self._actor.patch_pods(orphans, lambda _: REMOVE_FINALIZER)
        return [(pod, error) for pod, error in failed if not isinstance(error, NotFound)]

    def _orphaned(self, pod: Pod) -> bool:
        controller = controller_of(pod.raw)
        if controller is None:
            return True
        if controller.get("kind") != "Job" or controller.get("apiVersion") != "batch/v1":
            return False
        key = f"{pod.namespace}/{controller['name']}"
        if self._memory.is_released(key, pod.uid):
            return False
        job = self._jobs.get(key)
        if job is None or job["metadata"]["uid"] != controller["uid"]:
            return True
        if self._options.foreign((job.get("spec") or {}).get("managedBy")):
            return False  # its controller may use the finalizer for itself
        return is_finished(job.get("status") or {})
