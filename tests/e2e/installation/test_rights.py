"""Least privilege, both ways: our controllers do all their work with what the manifests grant, and use all of it."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
import yaml

from clusters import chart
from clusters.background import BackgroundFleet
from clusters.local import BinariesMissingError, LocalCluster
from clusters.local.ports import free_ports
from multimirror.admission import PATH
from multimirror.api import ATTEMPT_ANNOTATION, COHORTS, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.cli.apply import apply_and_compare
from multimirror.cli.installation.objects import InstallOptions, objects
from multimirror.kube import Client, Connection
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES, PODS, SECRETS
from tests.e2e.dispatching import condition, secret, until
from tests.e2e.history import watched
from tests.e2e.installation.processes import (
    SYSTEM,
    Audit,
    Json,
    Pods,
    Right,
    a_service,
    audit,
    by_rank,
    granted,
    multimirror,
    token_of,
)
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.cluster_kind("local")]

FOREVER = {"node.multimirror.dev/never-finish": "true"}


def a_job(name: str, labels: dict[str, str] | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "busybox"}
    template = {
        "metadata": {"annotations": annotations or {}, "labels": spec.pop("pod_labels", {})},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"backoffLimit": 3, **spec, "template": template},
    }


async def test_the_dispatcher_needs_exactly_what_it_is_granted(
    fleet: BackgroundFleet, workers: BackgroundFleet, admin: Client, pods: Pods
) -> None:
    assert isinstance(fleet.management, LocalCluster)
    done = await multimirror("install", "--admission", "webhook", kubeconfig=fleet.kubeconfig_file())
    assert done.code == 0, done.err
    rendered = objects(InstallOptions())
    deployments = {obj["metadata"]["name"]: obj for obj in rendered if obj["kind"] == "Deployment"}
    token, admissions = await token_of(admin, "multimirror"), await token_of(admin, "multimirror-admission")
    await _a_team(admin, workers)
    async with contextlib.AsyncExitStack() as stack:
        clusters = {name: cluster.kubeconfig for name, cluster in workers.workers.items()}
        await stack.enter_async_context(watched(fleet.management.kubeconfig, clusters, "team"))
        replicas = []
        for _ in range(deployments["multimirror"]["spec"]["replicas"]):
            run = pods.run(deployments["multimirror"], token, {}, port_flag="--health-address")
            replicas.append(await stack.enter_async_context(run))
        # The API server cannot reach Services here: a URL stands for it, with all replicas behind.
        ports = free_ports(deployments["multimirror-admission"]["spec"]["replicas"])
        url = f"https://127.0.0.1:{await stack.enter_async_context(a_service(ports))}{PATH}"
        register = ("install", "--component", "registration", "--admission-url", url)
        assert (await multimirror(*register, kubeconfig=fleet.kubeconfig_file())).code == 0
        webhooks = []
        for port in ports:
            changes = {"--service": f"--url={url}", "--address": f"--address=127.0.0.1:{port}"}
            run = pods.run(deployments["multimirror-admission"], admissions, changes, port_flag="--health-address")
            webhooks.append(await stack.enter_async_context(run))
        for webhook in webhooks:
            await webhook.ready()
        for replica in replicas:
            await replica.ready()
        await _the_life_of_jobs(admin, workers)
        leader, standby = await by_rank(replicas)
        with pytest.raises(
            Forbidden, match="there is no MirrorQueue 'other'"
        ):  # not even on the API server: it was asked
            await admin.create(JOBS, a_job("typo", {QUEUE_LABEL: "other"}), "team")
        assert await webhooks[0].stop() == 0
        assert await leader.stop() == 0
        await admin.create(JOBS, a_job("after", {QUEUE_LABEL: "training"}), "team")
        await until(admin, JOBS, "team", "after", lambda job: condition(job, "Complete"))
        assert await standby.leads()
        assert await standby.stop() == 0
    seen = audit(fleet.management, "multimirror")
    assert seen.refused == []
    # Nobody asks for `dispatch`: the policy multimirror-placement looks it up when a Job is placed.
    # A Job is read only when its copy is made by another process than assigned it, or after it was changed.
    # Tokens of workers are renewed after half a day: tests/security/test_credentials.py.
    implied = {("multimirror.dev", "mirrorqueues", "dispatch"), ("batch", "jobs", "get"), ("", "secrets", "patch")}
    assert seen.used | implied | without_streaming(seen) == granted(rendered, "multimirror")
    seen = audit(fleet.management, "multimirror-admission")
    assert seen.refused == []
    assert seen.used | without_streaming(seen) == granted(rendered, "multimirror-admission")
    for replica in (*replicas, *webhooks):
        assert "orbidden" not in replica.log.read_text()


def without_streaming(seen: Audit) -> set[Right]:
    """The lists that a server gives as a watch; where it does not (yet), or is too busy to, they are asked for."""
    return {(group, resource, "list") for group, resource, verb in seen.used if verb == "watch"}


async def until_counted(admin: Client, namespace: str, reason: str) -> None:
    """Until the same thing has been told twice, in one Event."""
    async with asyncio.timeout(DEADLINE):
        while True:
            events = (await admin.list(EVENTS, namespace)).items
            if any(event["reason"] == reason and (event.get("count") or 1) > 1 for event in events):
                return
            await asyncio.sleep(0.05)


async def _a_team(admin: Client, workers: BackgroundFleet) -> None:
    """A namespace, a queue in a cohort, and two workers."""
    for name, cluster in workers.workers.items():
        await admin.create(SECRETS, secret(name, cluster.kubeconfig), SYSTEM)
        spec = {"kubeconfig": {"secret": {"name": name}}}
        await admin.create(WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})
        async with Client(Connection.from_kubeconfig(cluster.kubeconfig)) as there:
            await there.create(NAMESPACES, {"metadata": {"name": "team"}})
    await admin.create(NAMESPACES, {"metadata": {"name": "team"}})
    await admin.create(MIRROR_QUEUES, {"metadata": {"name": "training"}, "spec": {"retention": "0s", "cohort": "all"}})
    await admin.create(COHORTS, {"metadata": {"name": "all"}})


async def _the_life_of_jobs(admin: Client, workers: BackgroundFleet) -> None:
    await until(admin, WORKER_CLUSTERS, None, "worker-1", lambda worker: condition(worker, "Ready"))
    await until(admin, COHORTS, None, "all", lambda cohort: condition(cohort, "Ready"))
    await _admitted(admin)
    await admin.create(JOBS, a_job("short", {QUEUE_LABEL: "training"}), "team")
    await until(admin, JOBS, "team", "short", lambda job: condition(job, "Complete"))
    await admin.create(JOBS, a_job("long", {QUEUE_LABEL: "training"}, FOREVER), "team")
    for attempt in ("2", "3", "4"):  # told in the same words each time: one Event, counted up
        job = await until(admin, JOBS, "team", "long", lambda job: bool((job.get("status") or {}).get("ready")))
        await _on_worker(workers, job, delete=True)
        await until(
            admin,
            JOBS,
            "team",
            "long",
            lambda job, attempt=attempt: job["metadata"]["annotations"].get(ATTEMPT_ANNOTATION) == attempt,  # type: ignore[misc]
        )
    job = await until(admin, JOBS, "team", "long", lambda job: bool((job.get("status") or {}).get("ready")))
    await admin.delete(JOBS, "long", "team", propagation="Background")
    async with asyncio.timeout(DEADLINE):
        while await _on_worker(workers, job):
            await asyncio.sleep(0.05)


async def _admitted(admin: Client) -> None:
    """The API server hears of the webhook a moment after it was registered."""
    async with asyncio.timeout(DEADLINE):
        while True:
            job = await admin.create(JOBS, a_job("probe", {QUEUE_LABEL: "training"}), "team", dry_run=True)
            if "managedBy" in job["spec"]:
                return
            await asyncio.sleep(0.05)


async def _on_worker(workers: BackgroundFleet, job: Json, *, delete: bool = False) -> bool:
    """Whether a worker has a copy."""
    found = False
    for cluster in workers.workers.values():
        async with Client(Connection.from_kubeconfig(cluster.kubeconfig)) as there:
            with contextlib.suppress(NotFound):
                await there.get(JOBS, job["metadata"]["name"], "team")
                found = True
                if delete:
                    await there.delete(JOBS, job["metadata"]["name"], "team", propagation="Background")
    return found


async def test_the_builtin_controller_needs_exactly_what_it_is_granted(
    fleet: BackgroundFleet, admin: Client, pods: Pods
) -> None:
    assert isinstance(fleet.management, LocalCluster)
    try:
        text = chart.render(
            "dispatcher.enabled=false", "builtinController.enabled=true", "builtinController.gangScheduling=true"
        )
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    rendered = [obj for obj in yaml.safe_load_all(text) if obj]
    with contextlib.suppress(NotFound):
        await apply_and_compare(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    for obj in rendered:
        await apply_and_compare(admin, obj)
    await admin.create(NAMESPACES, {"metadata": {"name": "batch"}})
    deployment = next(obj for obj in rendered if obj["kind"] == "Deployment")
    token = await token_of(admin, "multimirror-builtin-controller")
    changes = {"--sync-batch-period": ""}
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(pods.run(deployment, token, changes, port_flag="--metrics-bind-address"))
            for _ in range(deployment["spec"]["replicas"])
        ]
        for replica in replicas:
            await replica.ready()
        await _jobs_of_every_sort(admin)
        leader, standby = await by_rank(replicas)
        assert await leader.stop() == 0
        await admin.create(JOBS, a_job("after"), "batch")
        await until(admin, JOBS, "batch", "after", lambda job: condition(job, "Complete"))
        assert await standby.stop() == 0
    seen = audit(fleet.management, "multimirror-builtin-controller")
    assert seen.refused == []
    # jobs/finalizers is never asked for: it is looked up when a pod says that it blocks the deletion of its Job. This
    # API server has the plugin that does so (OwnerReferencesPermissionEnforcement): without the right, no pod is made.
    implied = {("batch", "jobs/finalizers", "update")}
    assert seen.used | implied | without_streaming(seen) == granted(rendered, "multimirror-builtin-controller")
    for replica in replicas:
        assert "orbidden" not in replica.log.read_text()


async def _jobs_of_every_sort(admin: Client) -> None:
    await admin.create(JOBS, a_job("gang", completions=2, parallelism=2, completionMode="Indexed"), "batch")
    failing = a_job("failing", annotations={"node.multimirror.dev/exit-code": "1"}, backoffLimit=0)
    await admin.create(JOBS, failing, "batch")
    await admin.create(JOBS, a_job("long", annotations=FOREVER, pod_labels={"app": "long"}), "batch")
    await until(admin, JOBS, "batch", "gang", lambda job: condition(job, "Complete"))
    await until(admin, JOBS, "batch", "failing", lambda job: condition(job, "Failed"))
    job = await until(admin, JOBS, "batch", "long", lambda job: bool((job.get("status") or {}).get("ready")))
    await _an_orphan_is_adopted(admin, job)
    for suspend in (True, False, True):  # told in the same words each time: one Event, counted up
        await admin.patch(JOBS, "long", {"spec": {"suspend": suspend}}, "batch")
        await until(admin, JOBS, "batch", "long", lambda job, so=suspend: condition(job, "Suspended") is so)  # type: ignore[misc]
    await until_counted(admin, "batch", "Suspended")
    await admin.delete(JOBS, "long", "batch", propagation="Background")


async def _an_orphan_is_adopted(admin: Client, job: Json) -> None:
    """A pod that fits the Job and belongs to nobody: the Job is read once more before it is taken."""
    labels = job["spec"]["template"]["metadata"]["labels"]
    pod = {
        "metadata": {"name": "orphan", "labels": labels, "annotations": FOREVER},
        "spec": job["spec"]["template"]["spec"],
    }
    await admin.create(PODS, json.loads(json.dumps(pod)), "batch")
    await until(admin, PODS, "batch", "orphan", lambda pod: bool(pod["metadata"].get("ownerReferences")))
