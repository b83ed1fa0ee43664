"""A namespace as a test sees it: Jobs and pods as they change, and a controller to run them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from builtin_controller import JobController, Options
from multimirror.batch import Json, is_finished
from multimirror.kube import Change, Client, Informer
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES, PODS
from tests.waiting import DEADLINE

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
NODE = "node.multimirror.dev/"

FAST: dict[str, Any] = {"sync_batch_period": 0.05, "pod_backoff_base": 0.1, "api_backoff_base": 0.1}


class World:
    """One namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._jobs = Informer(client, JOBS, namespace)
        self._pods = Informer(client, PODS, namespace)
        self._changed = asyncio.Event()
        self.history: list[Json] = []
        """Every version of every Job that was seen."""
        self._jobs.add_handler(self._on_job)
        self._pods.add_handler(lambda _: self._changed.set())
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for informer in (self._jobs, self._pods):
            await self._stack.enter_async_context(informer)
            await informer.synced()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pod in self.pods():  # the server lives on; nobody else frees these
            if pod["metadata"].get("finalizers"):
                with contextlib.suppress(Exception):
                    await self.client.patch(
                        PODS, pod["metadata"]["name"], {"metadata": {"finalizers": None}}, self.namespace
                    )
        await self._stack.aclose()

    def _on_job(self, change: Change) -> None:
        if change.new is not None:
            self.history.append(change.new)
        self._changed.set()

    def options(self, **more: Any) -> Options:
        return Options(namespace=self.namespace, **{**FAST, **more})

    @contextlib.asynccontextmanager
    async def controller(self, **options: Any) -> AsyncIterator[JobController]:
        async with JobController(self.client, self.options(**options)) as controller:
            yield controller

    async def create(self, name: str = "j", *, node: Json | None = None, pod: Json | None = None, **spec: Any) -> Json:
        """A Job; `node` says how its pods behave (see clusters.nodes)."""
        annotations = {f"{NODE}{key}": str(value) for key, value in (node or {}).items()}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "busybox"}],
                **(pod or {}),
            },
        }
        job = {"metadata": {"name": name, "namespace": self.namespace}, "spec": {**spec, "template": template}}
        return await self.client.create(JOBS, job)

    async def patch(self, name: str, patch: Json, **more: Any) -> Json:
        return await self.client.patch(JOBS, name, patch, self.namespace, **more)

    def job(self, name: str = "j") -> Json:
        return self._jobs.get(f"{self.namespace}/{name}") or {}

    def status(self, name: str = "j") -> Json:
        return self.job(name).get("status") or {}

    def conditions(self, name: str = "j") -> list[tuple[str, str, str]]:
        return [(c["type"], c["status"], c.get("reason", "")) for c in self.status(name).get("conditions") or ()]

    def pods(self, name: str | None = None) -> list[Json]:
        """The pods that are there, or those of one Job."""
        return [
            pod
            for pod in self._pods.list()
            if name is None or pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name
        ]

    def story(self) -> str:
        """What is there, for the message of an assertion."""
        pods = [
            {
                "name": pod["metadata"]["name"],
                "phase": pod.get("status", {}).get("phase"),
                "annotations": {k: v for k, v in (pod["metadata"].get("annotations") or {}).items() if "batch" in k},
                "created": pod["metadata"].get("creationTimestamp"),
                "deleted": pod["metadata"].get("deletionTimestamp"),
                "ended": pod.get("status", {}).get("containerStatuses"),
            }
            for pod in self.pods()
        ]
        return f"Jobs: {[(job['metadata']['name'], job.get('status')) for job in self._jobs.list()]}; pods: {pods}"

    def tracked(self, name: str | None = None) -> list[str]:
        """The pods that carry the tracking finalizer."""
        return [p["metadata"]["name"] for p in self.pods(name) if FINALIZER in (p["metadata"].get("finalizers") or ())]

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until it is so."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not what():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain; {self.story()}") from None

    async def finished(self, name: str = "j") -> Json:
        """The status in which the Job ended, once its pods are free."""
        await self.until(lambda: is_finished(self.status(name)) and not self.tracked(name))
        return self.status(name)

    async def running(self, count: int, name: str = "j") -> None:
        """Wait until that many pods run, and the status says so."""
        await self.until(lambda: self.status(name).get("ready") == count and self.status(name).get("active") == count)

    async def events(self, name: str = "j", *, wanted: str) -> list[tuple[str, str, str]]:
        """Type, reason and message of the Job's events, once there is one with the wanted reason."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found = (await self.client.list(EVENTS, self.namespace)).items
                mine = [e for e in found if e["involvedObject"].get("name") == name]
                if any(event["reason"] == wanted for event in mine):
                    return [(event["type"], event["reason"], event["message"]) for event in mine]
                await asyncio.sleep(0.05)  # events are written when there is time for them: nothing to await

    async def set_phase(self, pod: Json, phase: str, **status: Any) -> None:
        """Say as a kubelet would what became of a pod."""
        metadata = pod["metadata"]
        patch = {"status": {"phase": phase, **status}}
        await self.client.patch(PODS, metadata["name"], patch, self.namespace, subresource="status")
