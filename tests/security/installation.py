"""What attackers and their victims share: an installation as an operator made it, and accounts on its clusters."""

import asyncio
import contextlib
import copy
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from clusters.background import BackgroundFleet
from clusters.local import LocalCluster
from clusters.local.ports import free_ports
from multimirror.api import MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.kube import ApiError, Client, Connection, Resource
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, JOBS, NAMESPACES, SERVICE_ACCOUNTS
from tests.e2e.dispatching import condition
from tests.e2e.installation.processes import Json, multimirror, token, token_of
from tests.waiting import DEADLINE, eventually

SYSTEM: Final = "multimirror-system"
FOREVER: Final = {"node.multimirror.dev/never-finish": "true"}
"""On a pod: the simulated nodes let it run until it is deleted."""
_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
_ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
_TENANTS_RULES: Final = [
    {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
]
_VERBS: Final = ["get", "list", "watch", "create", "update", "patch", "delete"]
_numbers = count(1)


def unique(name: str) -> str:
    """A name that no other test uses."""
    return f"{name}-{next(_numbers)}"


def a_job(
    name: str, queue: str | None, *, pods: Mapping[str, str] = FOREVER, requests: Json | None = None, **spec: Any
) -> Json:
    """A Job as a tenant writes it. `pods`: annotations of its pods, for the simulated nodes."""
    container: Json = {"name": "main", "image": "busybox"}
    if requests:
        container["resources"] = {"requests": requests}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue} if queue else {}},
        "spec": {
            "backoffLimit": 0,
            **spec,
            "template": {
                "metadata": {"annotations": dict(pods)},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


@dataclass(frozen=True)
class Tenant:
    """An account that may do everything with Jobs, CronJobs and ConfigMaps in one namespace, and nothing else."""

    client: Client
    namespace: str
    kubeconfig: Json

    async def create(self, job: Json) -> Json:
        return await self.client.create(JOBS, job, self.namespace)

    async def job(self, name: str) -> Json:
        return await self.client.get(JOBS, name, self.namespace)

    async def patch(self, name: str, **body: Any) -> Json:
        return await self.client.patch(JOBS, name, body, self.namespace)

    async def until(self, name: str, so: Callable[[Json], object]) -> Json:
        """The Job, as soon as it is so."""
        return await eventually(lambda: self.job(name), so)

    async def until_complete(self, name: str) -> Json:
        return await self.until(name, lambda job: condition(job, "Complete"))


@dataclass
class DispatcherProcess:
    """`multimirror run` with the rights of the installation."""

    process: asyncio.subprocess.Process
    port: int
    log: Path
    arguments: tuple[str, ...]

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def peak_memory(self) -> int:
        """The most memory that it has had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def metric(self, start: str) -> float:
        """The sum of the samples whose line starts like that."""
        _, text = await self.get("/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(start))

    async def ready(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                assert self.alive, self.log.read_text()
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.get("/readyz"))[0] == 200:
                        return
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await self.process.wait()
        if self.alive:
            self.process.kill()
            await self.process.wait()


@dataclass
class Installation:
    """A management cluster and its workers."""

    fleet: BackgroundFleet
    directory: Path
    admin: Client
    workers: dict[str, Client]
    """Administrators of the workers."""
    stack: AsyncExitStack = field(repr=False)

    # --- the operator

    async def queue(self, name: str, **spec: Any) -> str:
        """A queue of that (unique) name."""
        name = unique(name)
        await self.admin.create(MIRROR_QUEUES, {"metadata": {"name": name}, "spec": {"retention": "0s", **spec}})
        return name

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """`multimirror ...` with the administrator's kubeconfig: exit code, standard output, standard error."""
        done = await multimirror(*arguments, kubeconfig=self.fleet.kubeconfig_file())
        return done.code, done.out, done.err

    @asynccontextmanager
    async def dispatcher(self, *flags: str, workers_ready: bool = True) -> AsyncIterator[DispatcherProcess]:
        """A dispatcher of the installation's account, for as long as the context is open."""
        number, (port,) = next(_numbers), free_ports(1)
        kubeconfig = self.directory / f"dispatcher-{number}.kubeconfig"
        management = self.fleet.management
        assert isinstance(management, LocalCluster)
        bearer = await token_of(self.admin, "multimirror")
        kubeconfig.write_text(yaml.safe_dump(management.kubeconfig_with_token(bearer)))
        kubeconfig.chmod(0o600)
        log = self.directory / f"dispatcher-{number}.log"
        arguments = (
            *(sys.executable, "-m", "multimirror.cli", "run", "--kubeconfig", str(kubeconfig)),
            *("--namespace", SYSTEM, "--health-address", f"127.0.0.1:{port}", *flags),
        )
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(*arguments, stdout=out, stderr=out)
        dispatcher = DispatcherProcess(process, port, log, arguments)
        try:
            await dispatcher.ready()
            if workers_ready:
                for name in self.workers:
                    await self.until_ready(name)
            yield dispatcher
        finally:
            await dispatcher.stop()

    async def until_ready(self, worker: str) -> Json:
        return await eventually(
            lambda: self.admin.get(WORKER_CLUSTERS, worker), lambda found: condition(found, "Ready")
        )

    # --- people with few rights

    async def tenant(self, name: str, *, rules: list[Json] | None = None) -> Tenant:
        """An account in a namespace of its own (unique) name, which every cluster has; on the management cluster."""
        namespace = unique(name)
        for client in (self.admin, *self.workers.values()):
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        return await self.account(self.admin, self.fleet.management, namespace, rules=rules)

    async def tenant_of_worker(self, worker: str, namespace: str, *, rules: list[Json] | None = None) -> Tenant:
        """An account on a worker, in that namespace."""
        client = self.workers[worker]
        with contextlib.suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        return await self.account(client, self.fleet.workers[worker], namespace, rules=rules)

    async def forger(self, worker: str | None = None) -> Client:
        """Somebody who got past the policies that leave our labels to us: on that worker, or on the management cluster.

        The policies refuse what attackers put on Jobs. What the dispatcher would make of it is tested with this.
        """
        cluster = self.fleet.management if worker is None else self.fleet.workers[worker]
        config = copy.deepcopy(dict(cluster.kubeconfig))
        for user in config["users"]:
            user["user"]["as"] = "forger"
        rules = [
            {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": _VERBS},
            {"apiGroups": ["multimirror.dev"], "resources": ["copies"], "verbs": ["make"]},
        ]
        admin, metadata = self.admin if worker is None else self.workers[worker], {"name": "forger"}
        role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "forger"}
        subjects = [{"apiGroup": _RBAC, "kind": "User", "name": "forger"}]
        with contextlib.suppress(AlreadyExists):
            await admin.create(CLUSTER_ROLES, {"metadata": metadata, "rules": rules})
            await admin.create(CLUSTER_ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": subjects})
        client = await self.stack.enter_async_context(Client(Connection.from_kubeconfig(config)))
        await eventually(lambda: _may(client.list(JOBS, "default")))
        return client

    async def account(self, admin: Client, cluster: Any, namespace: str, *, rules: list[Json] | None = None) -> Tenant:
        name = unique("account")
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace)
        await admin.create(_ROLES, {"metadata": {"name": name}, "rules": rules or _TENANTS_RULES}, namespace)
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        await admin.create(_ROLE_BINDINGS, binding, namespace)
        kubeconfig = cluster.kubeconfig_with_token(await token(admin, name, namespace))
        client = await self.stack.enter_async_context(Client(Connection.from_kubeconfig(kubeconfig)))
        if rules is None:
            await eventually(lambda: _may(client.list(JOBS, namespace)))
        return Tenant(client, namespace, kubeconfig)

    # --- what is where

    async def copies(self, namespace: str) -> dict[str, list[Json]]:
        """All Jobs of a namespace on the workers, whoever made them."""
        return {name: (await client.list(JOBS, namespace)).items for name, client in self.workers.items()}

    async def copy_of(self, job: Json) -> tuple[str, Json]:
        """Its worker and the Job of its name there, as soon as there is one."""
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]

        async def find() -> tuple[str, Json] | None:
            for worker, client in self.workers.items():
                with contextlib.suppress(NotFound):
                    return worker, await client.get(JOBS, name, namespace)
            return None

        found = await eventually(find)
        assert found is not None
        return found


async def _may(call: Any) -> bool:
    try:
        await call
    except ApiError:
        return False
    return True


@asynccontextmanager
async def installation_on(fleet: BackgroundFleet, directory: Path) -> AsyncIterator[Installation]:
    async with AsyncExitStack() as stack:

        async def client_of(kubeconfig: Json) -> Client:
            return await stack.enter_async_context(Client(Connection.from_kubeconfig(kubeconfig), user_agent="admin"))

        admin = await client_of(fleet.management.kubeconfig)
        workers = {name: await client_of(cluster.kubeconfig) for name, cluster in fleet.workers.items()}
        installation = Installation(fleet, directory, admin, workers, stack)
        code, out, err = await installation.command("install", "--admission", "policies")
        assert code == 0, out + err
        for name in workers:
            await _join(installation, name)
        yield installation


async def _join(installation: Installation, name: str) -> None:
    done = await multimirror(
        *("join", name, "--management-kubeconfig", str(installation.fleet.kubeconfig_file())),
        *("--all-namespaces", "--timeout", "0s"),
        kubeconfig=installation.fleet.kubeconfig_file(name),
    )
    assert done.code == 0, done.err
