"""What the policies refuse, tried by those who would gain from it; and what they must not get in the way of.

Tenants of the management cluster may do everything with Jobs in one namespace, and some of them with `jobs/status` too,
as `batch/*` grants it. Tenants of a worker have `edit` there. What deploys for tenants (Argo CD, Flux) is a
cluster-admin, and writes what they committed.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from multimirror.admission.copy_labels import LABELS
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    COPY_UID_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    PLACEMENT_ANNOTATIONS,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
    WORKER_CLUSTERS,
)
from multimirror.kube import ApiError, Client
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.kube.resources import CRON_JOBS, EVENTS, JOBS, NAMESPACES
from tests.e2e.admission.conftest import a_job_of
from tests.e2e.dispatching import condition
from tests.e2e.installation.processes import multimirror
from tests.security.installation import DispatcherProcess, Installation, a_job, unique
from tests.waiting import eventually

Json = dict[str, Any]
EVERYTHING_OF_BATCH = [{"apiGroups": ["batch"], "resources": ["*"], "verbs": ["*"]}]
PLACEMENT = {
    CLUSTER_ANNOTATION: "worker-1",
    ATTEMPT_ANNOTATION: "1",
    ADMITTED_QUEUE_ANNOTATION: "anybodys",
    RESERVED_ANNOTATION: "{}",
    COPY_UID_ANNOTATION: "00000000-0000-0000-0000-000000000000",
}
FORGED = dict.fromkeys(LABELS, "1")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guarded(installation: Installation) -> AsyncIterator[Installation]:
    """Policies are heard of a moment after they were written; those with parameters a little later."""
    copy = a_job("probe", None)
    copy["metadata"]["labels"] = {ORIGIN_LABEL: "x"}
    for client in (installation.admin, *installation.workers.values()):
        await eventually(partial(_refused, client, copy))
    ours = a_job("probe", None, managedBy=MANAGED_BY, suspend=True)
    await eventually(lambda: _refused(installation.admin, ours))
    yield installation


async def _refused(client: Client, job: Json) -> bool:
    try:
        await client.create(JOBS, job, "default", dry_run=True)
    except Forbidden:
        return True
    except ApiError:
        return False
    return False


def labelled(job: Json, **labels: str) -> Json:
    return {**job, "metadata": {**job["metadata"], "labels": {**job["metadata"]["labels"], **labels}}}


def annotated(job: Json, annotations: Json) -> Json:
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


# --- a tenant behind what deploys for it


async def test_what_deploys_for_tenants_does_not_create_a_placed_job(guarded: Installation) -> None:
    """A tenant commits a Job with our manager and a placement, and no queue: a cluster-admin creates it."""
    tenant = await guarded.tenant("gitops")
    committed = annotated(a_job("train", None, managedBy=MANAGED_BY, suspend=False), PLACEMENT)
    for client in (guarded.admin, tenant.client):
        with pytest.raises(Forbidden, match="written by multimirror alone"):
            await client.create(JOBS, committed, tenant.namespace)
        with pytest.raises(Forbidden, match="the Job names no queue"):
            await client.create(JOBS, annotated(committed, {}), tenant.namespace)


@pytest.mark.parametrize("key", PLACEMENT_ANNOTATIONS)
async def test_nor_does_it_place_a_job_that_is_there(guarded: Installation, key: str) -> None:
    tenant, queue = await guarded.tenant("gitops"), await guarded.queue("gitops")
    await tenant.create(a_job("train", queue))
    body: Json = {"metadata": {"annotations": {key: "1"}}, "spec": {"suspend": False}}
    applied = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", **body["metadata"]}}
    for client in (guarded.admin, tenant.client):
        with pytest.raises(Forbidden, match="written by multimirror alone"):
            await client.patch(JOBS, "train", body, tenant.namespace)
        with pytest.raises(Forbidden, match="written by multimirror alone"):
            await client.patch(
                JOBS, "train", applied, tenant.namespace, patch_type="apply", field_manager="argocd", force=True
            )


async def test_a_copied_job_is_a_new_one(guarded: Installation) -> None:
    """`kubectl get -o yaml | kubectl create` of a Job that is somewhere."""
    tenant, queue = await guarded.tenant("copying"), await guarded.queue("copying")
    for client, name in ((guarded.admin, "by-gitops"), (tenant.client, "by-hand")):
        job = annotated(a_job(name, queue, managedBy=MANAGED_BY, suspend=False), {**PLACEMENT, "mine": "stays"})
        made = await client.create(JOBS, job, tenant.namespace)
        assert made["metadata"]["annotations"] == {"mine": "stays"}
        assert made["spec"]["suspend"] is True


async def test_a_status_carries_no_placement(guarded: Installation) -> None:
    """`batch/*` grants jobs/status, in which one can write annotations and labels too."""
    tenant, queue = await guarded.tenant("batch", rules=EVERYTHING_OF_BATCH), await guarded.queue("batch")
    await eventually(lambda: _may(tenant.client.list(JOBS, tenant.namespace)))
    await tenant.create(a_job("train", queue))
    for metadata, told in (
        ({"annotations": PLACEMENT}, "written by multimirror alone"),
        ({"labels": {QUEUE_LABEL: None}}, "in a queue until it ends"),
        ({"labels": FORGED}, "kept for the copies that multimirror makes"),
    ):
        body = {"metadata": metadata, "status": {"active": 1}}
        with pytest.raises(Forbidden, match=told):
            await tenant.client.patch(JOBS, "train", body, tenant.namespace, subresource="status")


async def test_the_jobs_of_a_cron_job_are_no_way_round(guarded: Installation) -> None:
    tenant, queue = await guarded.tenant("cron"), await guarded.queue("cron")
    template = {
        "metadata": {"labels": {QUEUE_LABEL: queue}, "annotations": PLACEMENT},
        "spec": a_job("x", None)["spec"],
    }
    cron: Json = {"metadata": {"name": "nightly"}, "spec": {"schedule": "* * * * *", "jobTemplate": template}}
    made = await a_job_of(guarded.admin, cron, tenant.namespace)
    assert made["spec"]["managedBy"] == MANAGED_BY
    assert not set(PLACEMENT) & set(made["metadata"].get("annotations") or {})
    for metadata in ({"annotations": PLACEMENT}, {"labels": FORGED}):
        bad: Json = {**cron, "metadata": {"name": unique("bad")}}
        bad["spec"] = {**cron["spec"], "jobTemplate": {"metadata": metadata, "spec": {"managedBy": MANAGED_BY}}}
        bad["spec"]["jobTemplate"]["spec"] |= template["spec"]
        assert "multimirror" in await _event(guarded, bad, tenant.namespace)


async def _event(installation: Installation, cron: Json, namespace: str) -> str:
    """What is said about a CronJob that gets no Job."""
    name = cron["metadata"]["name"]
    await installation.admin.create(CRON_JOBS, cron, namespace)
    missed = {"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}
    await installation.admin.patch(CRON_JOBS, name, missed, namespace, subresource="status")
    selector = f"involvedObject.name={name},reason=FailedCreate"
    found = await eventually(lambda: _items(installation.admin, namespace, selector))
    await installation.admin.delete(CRON_JOBS, name, namespace)
    return str(found[0]["message"])


async def _items(client: Client, namespace: str, selector: str) -> list[Json]:
    return (await client.list(EVENTS, namespace, field_selector=selector)).items


# --- a tenant whose Job is on a cluster


async def test_a_placed_job_stays_as_it_was_counted(guarded: Installation, dispatcher: DispatcherProcess) -> None:
    """Create a large one, get placed, suspend it, make it small, resume it: more of the same for everybody else."""
    tenant, queue = await guarded.tenant("shrinking"), await guarded.queue("shrinking", quota={"cpu": "4"})
    await tenant.create(a_job("train", queue, requests={"cpu": "3900m"}))
    await tenant.until("train", lambda job: CLUSTER_ANNOTATION in (job["metadata"].get("annotations") or {}))
    await tenant.patch("train", spec={"suspend": True})
    await tenant.until("train", lambda job: condition(job, "Suspended"))  # from then on Kubernetes 1.36 allows it
    small = {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1m"}}}]}
    for client in (tenant.client, guarded.admin):
        with pytest.raises(Forbidden, match="cannot be changed while the Job is on a cluster"):
            await client.patch(JOBS, "train", {"spec": {"template": {"spec": small}}}, tenant.namespace)
        body = {"metadata": {"labels": {QUEUE_LABEL: "elsewhere"}}}
        with pytest.raises(Forbidden, match="cannot be changed while the Job is on a cluster"):
            await client.patch(JOBS, "train", body, tenant.namespace)
    await tenant.patch("train", spec={"suspend": False}, metadata={"labels": {"app": "x"}, "annotations": {"a": "b"}})
    assert dispatcher.alive


# --- tenants of a worker


async def test_a_tenant_of_a_worker_makes_nothing_that_looks_like_a_copy(guarded: Installation) -> None:
    namespace = unique("edit")
    tenant = await guarded.tenant_of_worker("worker-1", namespace)
    await tenant.client.create(JOBS, a_job("mine", None), namespace)
    for client in (tenant.client, guarded.workers["worker-1"]):
        for key in LABELS:
            with pytest.raises(Forbidden, match="kept for the copies"):
                await client.create(JOBS, labelled(a_job("forged", None), **{key: "1"}), namespace)
            with pytest.raises(Forbidden, match="kept for the copies"):
                await client.patch(JOBS, "mine", {"metadata": {"labels": {key: "1"}}}, namespace)


async def test_a_tenant_of_a_worker_can_end_a_copy_but_not_disguise_it(
    guarded: Installation, dispatcher: DispatcherProcess
) -> None:
    tenant, queue = await guarded.tenant("disguise"), await guarded.queue("disguise")
    worker, copy = await guarded.copy_of(await tenant.create(a_job("train", queue)))
    thief = await guarded.tenant_of_worker(worker, tenant.namespace)
    for key in (key for key in LABELS if key in copy["metadata"]["labels"]):
        for value in (None, "", "other"):
            with pytest.raises(Forbidden, match="kept for the copies"):
                await thief.patch("train", metadata={"labels": {key: value}})
    await thief.patch("train", metadata={"labels": {"app": "x"}}, spec={"parallelism": 1})
    assert dispatcher.alive


async def test_a_management_cluster_that_is_its_own_worker_is_guarded_as_both(guarded: Installation) -> None:
    """The attack of the audit: our labels on a finished Job of one's own, in any namespace of that cluster."""
    tenant, thief = await guarded.tenant("home"), await guarded.tenant("thief")
    copies, home = f"{tenant.namespace}-copies", unique("home")
    kubeconfig = guarded.fleet.kubeconfig_file()
    mapping = f"{tenant.namespace}={copies}"
    joined = await multimirror(
        *("join", home, "--management-kubeconfig", str(kubeconfig), "--same-cluster", "--timeout", "0s"),
        *("--namespaces", mapping, "--create-namespaces"),
        kubeconfig=kubeconfig,
    )
    assert joined.code == 0, joined.err
    declared = {"spec": {"capacity": {"mode": "Declared", "resources": {"cpu": "8", "pods": "10"}}}}
    await guarded.admin.patch(WORKER_CLUSTERS, home, declared)  # it has no nodes
    try:
        async with guarded.dispatcher() as dispatcher:
            queue = await guarded.queue("home", workers={"names": [home]})
            await tenant.create(a_job("train", queue))
            (copy,) = await eventually(lambda: _jobs(guarded.admin, copies))
            forged = {key: value for key, value in copy["metadata"]["labels"].items() if key in LABELS}
            assert set(forged) >= {ORIGIN_LABEL}
            for client in (thief.client, guarded.admin):
                with pytest.raises(Forbidden, match="kept for the copies"):
                    await client.create(JOBS, labelled(a_job("finished", None), **forged), thief.namespace)
            neighbour = await guarded.account(guarded.admin, guarded.fleet.management, copies)
            with pytest.raises(Forbidden, match="kept for the copies"):
                await neighbour.patch(copy["metadata"]["name"], metadata={"labels": {ORIGIN_LABEL: None}})
            await tenant.client.delete(JOBS, "train", tenant.namespace, propagation="Background")
            await eventually(lambda: _jobs(guarded.admin, copies), lambda found: not found)
            assert dispatcher.alive
    finally:
        await guarded.admin.delete(WORKER_CLUSTERS, home)


async def _jobs(client: Client, namespace: str) -> list[Json]:
    return (await client.list(JOBS, namespace)).items


# --- what must go on as if there were no policies


async def test_copies_come_run_and_go_and_namespaces_with_them(
    guarded: Installation, dispatcher: DispatcherProcess
) -> None:
    tenant, queue = await guarded.tenant("ordinary"), await guarded.queue("ordinary", retention="1h")
    await tenant.create(a_job("done", queue, pods={}, ttlSecondsAfterFinished=3600))
    await tenant.until_complete("done")
    _, copy = await guarded.copy_of(await tenant.job("done"))
    assert copy["metadata"]["labels"][ORIGIN_LABEL]
    await tenant.create(a_job("running", queue))
    await guarded.copy_of(await tenant.job("running"))
    # finalizers of others, on an original and on a copy, taken off while they are on their way out
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await tenant.client.patch(JOBS, "done", held, tenant.namespace)
    await tenant.client.delete(JOBS, "done", tenant.namespace, propagation="Foreground")
    await tenant.client.patch(JOBS, "done", {"metadata": {"finalizers": None}}, tenant.namespace)
    await eventually(lambda: _gone(guarded.admin, "done", tenant.namespace))
    # and whole namespaces, with their Jobs in them
    for client in (guarded.admin, *guarded.workers.values()):
        await client.delete(NAMESPACES, tenant.namespace)
    for client in (guarded.admin, *guarded.workers.values()):
        await eventually(partial(_gone, client, "running", tenant.namespace))
    assert dispatcher.alive


async def test_finished_jobs_end_by_their_ttl_and_with_what_owns_them(guarded: Installation) -> None:
    """Of Jobs that carry our labels, on a worker: the stock controllers update, orphan, collect and delete them."""
    forger, namespace = await guarded.forger("worker-2"), unique("collected")
    worker = guarded.workers["worker-2"]
    await worker.create(NAMESPACES, {"metadata": {"name": namespace}})
    owner = await worker.create(JOBS, a_job("owner", None, pods={}), namespace)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = labelled(a_job("owned", None), **FORGED)
    owned["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
    await forger.create(JOBS, owned, namespace)
    await forger.create(JOBS, labelled(a_job("short", None, pods={}, ttlSecondsAfterFinished=0), **FORGED), namespace)
    await eventually(lambda: _gone(worker, "short", namespace))
    await worker.delete(JOBS, "owner", namespace, propagation="Foreground")
    for name in ("owned", "owner"):
        await eventually(partial(_gone, worker, name, namespace))
    orphan = labelled(a_job("orphan", None), **FORGED)
    other = await worker.create(JOBS, a_job("other", None), namespace)
    orphan["metadata"]["ownerReferences"] = [{**reference, "name": "other", "uid": other["metadata"]["uid"]}]
    await forger.create(JOBS, orphan, namespace)
    await worker.delete(JOBS, "other", namespace, propagation="Orphan")
    await eventually(
        lambda: worker.get(JOBS, "orphan", namespace), lambda job: "ownerReferences" not in job["metadata"]
    )


async def _gone(client: Client, name: str, namespace: str) -> bool:
    try:
        await client.get(JOBS, name, namespace)
    except NotFound:
        return True
    return False


async def _may(call: Any) -> bool:
    try:
        await call
    except ApiError:
        return False
    return True
