"""multimirror as its users have it: in containers on a management cluster of kind, with workers that run real pods.

Commands are typed as an operator would, and clusters are seen through their APIs. What happens in a test's namespace is
recorded by watches on all clusters, and the promises are checked on that record once everything has come to rest.
"""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from clusters.background import BackgroundFleet
from clusters.kind.fleet import KindCluster
from faults.record import MANAGEMENT
from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES, QUEUE_LABEL
from multimirror.batch import find_condition, is_finished
from multimirror.kube import Client, Connection
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, NAMESPACES, PODS
from multimirror.workers.probe import identity_of
from tests.e2e.history import History, rules_of
from tests.waiting import eventually

Json = dict[str, Any]
SYSTEM: Final = "multimirror-system"
BUSYBOX: Final = "busybox"
_COMMAND: Final = (sys.executable, "-m", "multimirror.cli")


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


async def typed(*command: str, given: str | None = None, environment: Mapping[str, str] | None = None) -> Answer:
    """A command, run to its end beside everything else."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        out, err = await process.communicate(None if given is None else given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Answer(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


@dataclass
class Installation:
    """Clusters with multimirror on them, and somebody at a terminal who may do everything."""

    fleet: BackgroundFleet
    image: str
    _files: dict[str, Path] = field(default_factory=dict)

    @property
    def workers(self) -> list[str]:
        return list(self.fleet.workers)

    def cluster(self, name: str = MANAGEMENT) -> KindCluster:
        found = next(each for each in self.fleet.clusters() if each.name == name)
        assert isinstance(found, KindCluster)
        return found

    def node(self, name: str) -> str:
        """The container that is the cluster's only node."""
        return f"{self.cluster(name).kind_name}-control-plane"

    def kubeconfig(self, name: str = MANAGEMENT) -> Path:
        """For commands on this host."""
        if name not in self._files:
            self._files[name] = self.fleet.kubeconfig_file(name)
        return self._files[name]

    def client(self, name: str = MANAGEMENT) -> Client:
        """For `async with`."""
        return Client(Connection.from_kubeconfig(self.cluster(name).kubeconfig, name=name), user_agent="user")

    async def kubectl(self, *arguments: str, on: str = MANAGEMENT, given: str | None = None) -> Answer:
        return await typed("kubectl", "--kubeconfig", str(self.kubeconfig(on)), *arguments, given=given)

    async def kubectl_done(self, *arguments: str, on: str = MANAGEMENT, given: str | None = None) -> Answer:
        """`kubectl ...`, which must succeed."""
        answer = await self.kubectl(*arguments, on=on, given=given)
        assert answer.code == 0, f"kubectl {' '.join(arguments)} on {on}: {answer.code}\n{answer.out}\n{answer.err}"
        return answer

    async def docker(self, *arguments: str) -> str:
        """What it prints; it must succeed."""
        answer = await typed("docker", *arguments)
        assert answer.code == 0, f"docker {' '.join(arguments)}: {answer.err}"
        return answer.out

    async def multimirror(self, *arguments: str, given: str | None = None) -> Answer:
        """As from a shell whose KUBECONFIG names the management cluster."""
        return await typed(*_COMMAND, *arguments, given=given, environment=self._environment)

    @contextlib.asynccontextmanager
    async def reading(self, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
        """What `multimirror ...` prints, as it comes."""
        environment = {**os.environ, **self._environment}
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @property
    def _environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig()), "COLUMNS": "200"}

    async def done(self, *arguments: str) -> Answer:
        """`multimirror ...`, which must succeed."""
        answer = await self.multimirror(*arguments)
        assert answer.code == 0, f"multimirror {' '.join(arguments)}: {answer.code}\n{answer.out}\n{answer.err}"
        return answer

    async def install(self, *flags: str) -> None:
        """By command, and every worker joined for all namespaces."""
        await self.done("install", "--image", self.image, "--wait", *flags)
        await self.join_all()

    async def join_all(self) -> None:
        """Every worker, for all namespaces."""
        for worker in self.workers:
            await self.join(worker)

    async def rolled_out(self, deployment: str = "multimirror") -> None:
        """All replicas are what they are to be, and ready."""
        await self.kubectl_done("-n", SYSTEM, "rollout", "status", f"deployment/{deployment}", "--timeout=300s")

    async def remove(self) -> None:
        """All of it, by command, if there is any; Jobs that are left fail."""
        for worker in self.workers:
            await self.multimirror(
                "leave", worker, "--force", "--cleanup", "--kubeconfig", str(self.kubeconfig(worker))
            )
        await self.done("uninstall", "--force", "--crds", "--delete-namespace")

    async def join(self, worker: str, *flags: str) -> None:
        """By the address that clusters use among themselves; on return the dispatcher can use it."""
        server = self.cluster(worker).internal_kubeconfig["clusters"][0]["cluster"]["server"]
        where = () if {"--namespaces", "--all-namespaces"} & set(flags) else ("--all-namespaces",)
        mine = ("--management-kubeconfig", str(self.kubeconfig()), "--kubeconfig", str(self.kubeconfig(worker)))
        await self.done("join", worker, *mine, "--server", server, *where, *flags)
        await self.kubectl_done("wait", "--for=condition=Ready", f"workercluster/{worker}", "--timeout=120s")


@dataclass
class Stage:
    """One test's namespace, on all clusters, and its queue."""

    installation: Installation
    namespace: str
    clients: Mapping[str, Client]
    history: History

    @property
    def management(self) -> Client:
        return self.clients[MANAGEMENT]

    @property
    def queue(self) -> str:
        return self.namespace

    def a_job(
        self, name: str, *command: str, pod: Json | None = None, container: Json | None = None, **spec: Any
    ) -> Json:
        """A Job of the stage's queue: busybox, never restarted, unless said otherwise."""
        main = {
            "name": "main",
            "image": BUSYBOX,
            **({"command": list(command)} if command else {}),
            **(container or {}),
        }
        template = {
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main], **(pod or {})}
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {QUEUE_LABEL: self.queue}},
            "spec": {"template": template, **spec},
        }

    async def create(self, job: Json) -> Json:
        return await self.management.create(JOBS, job)

    async def job(self, name: str, on: str = MANAGEMENT) -> Json:
        return await self.clients[on].get(JOBS, name, self.namespace)

    async def status(self, name: str, on: str = MANAGEMENT) -> Json:
        return (await self.job(name, on)).get("status") or {}

    async def pods(self, name: str, on: str) -> list[Json]:
        selector = f"batch.kubernetes.io/job-name={name}"
        return (await self.clients[on].list(PODS, self.namespace, label_selector=selector)).items

    async def worker_of(self, name: str) -> str:
        """Where it was sent, as soon as it was."""
        found = await eventually(lambda: self.placed(name))
        assert found is not None
        return found

    async def placed(self, name: str) -> str | None:
        return ((await self.job(name))["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)

    async def ended(self, name: str) -> Json:
        """Its last status."""
        return await eventually(lambda: self.status(name), is_finished)

    async def condition(self, name: str, kind: str) -> Json:
        """As soon as it is true."""
        return await eventually(lambda: self._condition(name, kind), lambda found: found.get("status") == "True")

    async def _condition(self, name: str, kind: str) -> Json:
        return find_condition((await self.status(name)).get("conditions") or (), kind) or {}


@contextlib.asynccontextmanager
async def a_stage(installation: Installation, queue: Json | None = None) -> AsyncIterator[Stage]:
    """Everything that happens in it is recorded; at its end the promises must have been kept."""
    namespace = f"stage-{secrets.token_hex(3)}"
    wanted = {
        "apiVersion": MIRROR_QUEUES.api_version,
        "kind": MIRROR_QUEUES.kind,
        "metadata": {"name": namespace},
        "spec": queue or {},
    }
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            each.name: await stack.enter_async_context(installation.client(each.name))
            for each in installation.fleet.clusters()
        }
        for client in clients.values():
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        made = await clients[MANAGEMENT].create(MIRROR_QUEUES, wanted)
        workers = {name: client for name, client in clients.items() if name != MANAGEMENT}
        history = await stack.enter_async_context(History(clients[MANAGEMENT], workers))
        await history.follow(namespace)
        stage = Stage(installation, namespace, clients, history)
        try:
            yield stage
            await history.check(rules_of(made, await identity_of(clients[MANAGEMENT])))
        finally:
            with contextlib.suppress(NotFound):
                await clients[MANAGEMENT].delete(MIRROR_QUEUES, namespace)
            for client in clients.values():
                with contextlib.suppress(NotFound):
                    await client.delete(NAMESPACES, namespace)
