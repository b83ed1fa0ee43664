"""`multimirror uninstall`: no Job is left stuck, no copy is left behind, and nothing of others is touched."""

import asyncio
import contextlib
import secrets as randomness
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from clusters.background import BackgroundFleet
from multimirror.admission import PATH, Registration
from multimirror.api import MIRROR_QUEUES, ORIGIN_LABEL, WORKER_CLUSTERS
from multimirror.cli.apply import find
from multimirror.cli.installation.objects import KINDS, InstallOptions, identity, objects
from multimirror.kube import Client, Connection
from multimirror.kube.errors import NotFound, ServerError
from multimirror.kube.resources import JOBS, NAMESPACES, PODS, SECRETS
from multimirror.options import DispatcherOptions
from tests.e2e.dispatching import a_dispatcher, a_job, condition, secret, until
from tests.e2e.history import rules_of, watched
from tests.e2e.installation.processes import SYSTEM, Json, multimirror
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.cluster_kind("local")]
WEBHOOKS = KINDS["MutatingWebhookConfiguration"]
(WEBHOOK,) = [obj for obj in objects(InstallOptions()) if obj["kind"] == WEBHOOKS.kind]
(DEPLOYMENT,) = [obj for obj in objects(InstallOptions()) if identity(obj) == ("Deployment", SYSTEM, "multimirror")]


@dataclass
class Installation:
    """A namespace on both clusters, a queue, and a worker of its own name."""

    name: str
    admin: Client
    there: Client
    kubeconfig: Path

    async def submit(self, name: str, **behaviour: str) -> Json:
        return await self.admin.create(JOBS, a_job(name, queue=self.name, **behaviour), self.name)

    async def blocked(self) -> None:
        """The webhook is registered, and nobody answers: as when all replicas are away."""
        registration = Registration(url=f"https://127.0.0.1:9{PATH}").configuration(b"")
        await self.admin.patch(WEBHOOKS, "multimirror", {"webhooks": registration["webhooks"]})
        await self._until_created(free=False)

    async def free(self) -> None:
        """Jobs that ask for a queue can be created."""
        await self._until_created(free=True)

    async def _until_created(self, *, free: bool) -> None:
        """The API server hears of registrations a moment later."""
        async with asyncio.timeout(DEADLINE):
            while True:
                created = False
                with contextlib.suppress(ServerError):
                    await self.admin.create(JOBS, a_job("probe", queue=self.name), self.name, dry_run=True)
                    created = True
                if created is free:
                    return
                await asyncio.sleep(0.05)

    async def running(self, name: str) -> None:
        await until(self.admin, JOBS, self.name, name, lambda job: bool((job.get("status") or {}).get("ready")))

    @contextlib.asynccontextmanager
    async def dispatcher(self) -> AsyncIterator[None]:
        config = yaml.safe_load(self.kubeconfig.read_text())
        for user in config["users"]:  # the policies take no administrator for the dispatcher
            user["user"]["as"] = f"system:serviceaccount:{SYSTEM}:multimirror"
        connection = Connection.from_kubeconfig(config, name="management")
        async with Client(connection) as client, await a_dispatcher(client, DispatcherOptions(namespace=SYSTEM)):
            yield

    async def uninstall(self, *arguments: str) -> "tuple[int, str, str]":
        done = await multimirror("uninstall", *arguments, kubeconfig=self.kubeconfig)
        return done.code, done.out, done.err


@pytest_asyncio.fixture(loop_scope="session")
async def installation(
    fleet: BackgroundFleet, admin: Client, workers: BackgroundFleet, kubeconfig: Path
) -> AsyncIterator[Installation]:
    """Installed, with a worker and a queue."""
    name = f"team-{randomness.token_hex(3)}"
    done = await multimirror("install", "--admission", "webhook", "--wait", kubeconfig=kubeconfig)
    assert done.code == 0, done.err
    await admin.patch(WEBHOOKS, "multimirror", {"webhooks": []})  # nobody would answer: there are no real pods here
    there_config = workers.workers["worker-1"].kubeconfig
    async with Client(Connection.from_kubeconfig(there_config)) as there:
        for client in (admin, there):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        for cluster in (await admin.list(WORKER_CLUSTERS)).items:
            await admin.delete(WORKER_CLUSTERS, cluster["metadata"]["name"])
        await admin.create(SECRETS, secret(name, there_config), SYSTEM)
        spec = {"kubeconfig": {"secret": {"name": name}}}
        await admin.create(WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})
        queue = await admin.create(MIRROR_QUEUES, {"metadata": {"name": name}, "spec": {"quota": {"jobs": 1}}})
        installation = Installation(name, admin, there, kubeconfig)
        await installation.free()
        async with watched(fleet.management.kubeconfig, {name: there_config}, name, rules_of(queue)):
            yield installation
        for client in (admin, there):
            await client.request("DELETE", JOBS.path(name), {"propagationPolicy": "Background"})
        with contextlib.suppress(NotFound):
            await admin.delete(WORKER_CLUSTERS, name)


async def test_jobs_that_are_not_finished_stop_it(installation: Installation) -> None:
    job = await installation.submit("waiting")
    code, out, err = await installation.uninstall()
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"error: 1 Job is not finished: {installation.name}/waiting (waiting)",
        "  Wait for them with --drain, or end them with --force; or delete them.",
    ]
    for obj in objects(InstallOptions()):
        assert await find(installation.admin, obj) is not None, identity(obj)
    assert (await installation.admin.get(JOBS, "waiting", installation.name))["metadata"]["uid"] == job["metadata"][
        "uid"
    ]
    await installation.admin.delete(
        JOBS, "waiting", installation.name
    )  # nobody is there who would say what it waits for


async def test_drained_means_that_jobs_end_by_themselves(installation: Installation) -> None:
    async with installation.dispatcher():
        await installation.submit("endless", never_finish="true")
        await installation.running("endless")
        await installation.submit("next")  # the queue takes one at a time
        uninstalling = asyncio.create_task(installation.uninstall("--drain", "--timeout", "120"))
        async with asyncio.timeout(DEADLINE):
            while await find(installation.admin, WEBHOOK) is not None:
                await asyncio.sleep(0.05)
        assert await find(installation.admin, DEPLOYMENT) is not None
        await installation.admin.delete(JOBS, "endless", installation.name, propagation="Background")
        code, out, err = await uninstalling
    assert (code, err) == (0, "")
    assert "all Jobs are finished" in out
    assert condition(await installation.admin.get(JOBS, "next", installation.name), "Complete")
    assert (await installation.there.list(JOBS, installation.name)).items == []
    await _only_what_is_kept(installation.admin)


async def test_forced_means_that_jobs_fail_and_say_why_and_nothing_of_others_is_touched(
    installation: Installation,
) -> None:
    async with installation.dispatcher():
        await installation.submit("running", never_finish="true")
        await installation.running("running")
        await installation.submit("waiting")
    foreign = a_job("foreign", queue=installation.name)
    foreign["spec"]["managedBy"] = "example.com/other"
    await installation.admin.create(JOBS, foreign, installation.name)
    theirs = a_job("theirs", queue=installation.name)
    theirs["metadata"]["labels"] = {ORIGIN_LABEL: "another-cluster"}
    del theirs["spec"]["managedBy"]
    await installation.there.create(JOBS, theirs, installation.name)
    await installation.admin.create(SECRETS, secret("nowhere", _nowhere()), SYSTEM)
    spec = {"kubeconfig": {"secret": {"name": "nowhere"}}}
    await installation.admin.create(WORKER_CLUSTERS, {"metadata": {"name": "nowhere"}, "spec": spec})

    await installation.blocked()
    told = await installation.uninstall("--force", "--dry-run")
    assert "job.batch/waiting in " in told[1]
    for obj in objects(InstallOptions()):
        assert await find(installation.admin, obj) is not None, identity(obj)

    code, out, err = await installation.uninstall("--force")
    assert code == 0, err
    for name in ("running", "waiting"):
        job = await installation.admin.get(JOBS, name, installation.name)
        (failed,) = [c for c in job["status"]["conditions"] if c["type"] == "Failed"]
        assert failed["reason"] == "Uninstalled"
    assert f"1 copies removed from worker {installation.name}" in out
    assert "warning: worker nowhere may still hold copies" in err
    assert f"kubectl delete jobs --all-namespaces -l {ORIGIN_LABEL}=" in err
    assert not condition(await installation.admin.get(JOBS, "foreign", installation.name), "Failed")
    assert [job["metadata"]["name"] for job in (await installation.there.list(JOBS, installation.name)).items] == [
        "theirs"
    ]
    async with asyncio.timeout(DEADLINE):
        while (await installation.there.list(PODS, installation.name)).items:
            await asyncio.sleep(0.05)
    await _only_what_is_kept(installation.admin)
    await installation.free()
    await installation.admin.delete(WORKER_CLUSTERS, "nowhere")
    await installation.admin.delete(SECRETS, "nowhere", SYSTEM)


async def test_definitions_and_namespace_go_only_when_asked_for(installation: Installation) -> None:
    code, _, err = await installation.uninstall("--crds", "--delete-namespace")
    assert code == 0, err
    for obj in objects(InstallOptions()):
        assert await find(installation.admin, obj) is None, identity(obj)
    again = await installation.uninstall("--crds", "--delete-namespace")
    assert again == (0, f"nothing of multimirror is in namespace {SYSTEM}\n", "")


async def _only_what_is_kept(admin: Client) -> None:
    for obj in objects(InstallOptions()):
        kept = obj["kind"] in {"Namespace", "CustomResourceDefinition"}
        assert (await find(admin, obj) is not None) is kept, identity(obj)


def _nowhere() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
