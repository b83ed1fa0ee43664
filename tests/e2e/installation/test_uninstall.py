"""`multimirror uninstall`: no Job is left stuck, no copy is left behind, and nothing of others is touched."""

import asyncio
import contextlib
import secrets as randomness
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

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
from tests.e2e.history import rules_of, witnessed
from tests.e2e.installation.processes import SYSTEM, Json, multimirror
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.cluster_kind("local")]
WEBHOOKS = KINDS["MutatingWebhookConfiguration"]
(WEBHOOK,) = [obj for obj in objects(InstallOptions()) if obj["kind"] == WEBHOOKS.kind]
(DEPLOYMENT,) = [obj for obj in objects(InstallOptions()) if obj["kind"] == "Deployment"]


@dataclass
class Place:
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
        for webhook in registration["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
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
        connection = Connection.from_kubeconfig(self.kubeconfig, name="management")
        async with Client(connection) as client, await a_dispatcher(client, DispatcherOptions(namespace=SYSTEM)):
            yield

    async def uninstall(self, *arguments: str) -> "tuple[int, str, str]":
        done = await multimirror("uninstall", *arguments, kubeconfig=self.kubeconfig)
        return done.code, done.out, done.err


@pytest_asyncio.fixture(loop_scope="session")
async def place(
    fleet: BackgroundFleet, admin: Client, workers: BackgroundFleet, kubeconfig: Path
) -> AsyncIterator[Place]:
    """Installed, with a worker and a queue."""
    name = f"team-{randomness.token_hex(3)}"
    with contextlib.suppress(NotFound):  # filled in by an earlier test's dispatcher
        await admin.delete(WEBHOOKS, "multimirror")
    done = await multimirror("install", "--wait", kubeconfig=kubeconfig)
    assert done.code == 0, done.err
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
        place = Place(name, admin, there, kubeconfig)
        await place.free()
        async with witnessed(fleet.management.kubeconfig, {name: there_config}, name, rules_of(queue)):
            yield place
        for client in (admin, there):
            await client.request("DELETE", JOBS.path(name), {"propagationPolicy": "Background"})
        with contextlib.suppress(NotFound):
            await admin.delete(WORKER_CLUSTERS, name)


async def test_jobs_that_are_not_finished_stop_it(place: Place) -> None:
    job = await place.submit("waiting")
    code, out, err = await place.uninstall()
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"error: 1 Job is not finished: {place.name}/waiting (waiting)",
        "  Wait for them with --drain, or end them with --force; or delete them.",
    ]
    for obj in objects(InstallOptions()):
        assert await find(place.admin, obj) is not None, identity(obj)
    assert (await place.admin.get(JOBS, "waiting", place.name))["metadata"]["uid"] == job["metadata"]["uid"]
    await place.admin.delete(JOBS, "waiting", place.name)  # nobody is there who would say what it waits for


async def test_drained_means_that_jobs_end_by_themselves(place: Place) -> None:
    async with place.dispatcher():
        await place.submit("endless", never_finish="true")
        await place.running("endless")
        await place.submit("next")  # the queue takes one at a time
        uninstalling = asyncio.create_task(place.uninstall("--drain", "--timeout", "120"))
        async with asyncio.timeout(DEADLINE):
            while await find(place.admin, WEBHOOK) is not None:
                await asyncio.sleep(0.05)
        assert await find(place.admin, DEPLOYMENT) is not None
        await place.admin.delete(JOBS, "endless", place.name, propagation="Background")
        code, out, err = await uninstalling
    assert (code, err) == (0, "")
    assert "all Jobs are finished" in out
    assert condition(await place.admin.get(JOBS, "next", place.name), "Complete")
    assert (await place.there.list(JOBS, place.name)).items == []
    await _only_what_is_kept(place.admin)


async def test_forced_means_that_jobs_fail_and_say_why_and_nothing_of_others_is_touched(place: Place) -> None:
    async with place.dispatcher():
        await place.submit("running", never_finish="true")
        await place.running("running")
        await place.submit("waiting")
    foreign = a_job("foreign", queue=place.name)
    foreign["spec"]["managedBy"] = "example.com/other"
    await place.admin.create(JOBS, foreign, place.name)
    theirs = a_job("theirs", queue=place.name)
    theirs["metadata"]["labels"] = {ORIGIN_LABEL: "another-cluster"}
    del theirs["spec"]["managedBy"]
    await place.there.create(JOBS, theirs, place.name)
    await place.admin.create(SECRETS, secret("nowhere", _nowhere()), SYSTEM)
    spec = {"kubeconfig": {"secret": {"name": "nowhere"}}}
    await place.admin.create(WORKER_CLUSTERS, {"metadata": {"name": "nowhere"}, "spec": spec})

    await place.blocked()
    told = await place.uninstall("--force", "--dry-run")
    assert "job.batch/waiting in " in told[1]
    for obj in objects(InstallOptions()):
        assert await find(place.admin, obj) is not None, identity(obj)

    code, out, err = await place.uninstall("--force")
    assert code == 0, err
    for name in ("running", "waiting"):
        job = await place.admin.get(JOBS, name, place.name)
        (failed,) = [c for c in job["status"]["conditions"] if c["type"] == "Failed"]
        assert failed["reason"] == "Uninstalled"
    assert f"1 copies removed from worker {place.name}" in out
    assert "warning: worker nowhere may still hold copies" in err
    assert f"kubectl delete jobs --all-namespaces -l {ORIGIN_LABEL}=" in err
    assert not condition(await place.admin.get(JOBS, "foreign", place.name), "Failed")
    assert [job["metadata"]["name"] for job in (await place.there.list(JOBS, place.name)).items] == ["theirs"]
    async with asyncio.timeout(DEADLINE):
        while (await place.there.list(PODS, place.name)).items:
            await asyncio.sleep(0.05)
    await _only_what_is_kept(place.admin)
    await place.free()
    await place.admin.delete(WORKER_CLUSTERS, "nowhere")
    await place.admin.delete(SECRETS, "nowhere", SYSTEM)


async def test_definitions_and_namespace_go_only_when_asked_for(place: Place) -> None:
    code, _, err = await place.uninstall("--crds", "--delete-namespace")
    assert code == 0, err
    for obj in objects(InstallOptions()):
        assert await find(place.admin, obj) is None, identity(obj)
    again = await place.uninstall("--crds", "--delete-namespace")
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
