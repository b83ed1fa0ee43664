"""Where a Job is, is for the dispatcher to say: the policies in deploy/admission on a real API server, with accounts.

A tenant has the ClusterRole `edit` in a namespace, the dispatcher the role that is installed for it, and what deploys
for tenants is a cluster-admin, as Argo CD and Flux are by default. The webhook is the one that other tests use; the
mutating policies are only another way to the same Jobs, and the policies here are the same for both.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.local import LocalCluster
from multimirror.admission.copy_labels import LABELS
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    FENCE_ANNOTATION,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    PLACEMENT_ANNOTATIONS,
    QUEUE_LABEL,
)
from multimirror.cli.apply import apply, apply_all
from multimirror.cli.manifests import manifest
from multimirror.kube import ApiError, Client, Connection
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import JOBS, SERVICE_ACCOUNTS
from tests.e2e.admission.conftest import Object, Server, a_job, a_namespace, unique
from tests.e2e.admission.test_webhook import admission
from tests.e2e.installation.processes import token
from tests.waiting import DEADLINE

pytestmark = [
    # The embedded cluster does not run CEL.
    pytest.mark.parametrize("cluster", ["local"], indirect=True),
]

OURS = {"managedBy": MANAGED_BY, "suspend": True}
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class People:
    namespace: str
    tenant: Client
    gitops: Client
    dispatcher: Client

    async def submit(self, name: str = "job", **annotations: str) -> Object:
        """As admission leaves it."""
        job = a_job(name, {QUEUE_LABEL: "training"}, **OURS)
        job["metadata"]["annotations"] = annotations
        return await self.tenant.create(JOBS, job, self.namespace)

    async def placed(self, name: str = "job") -> Object:
        """A Job that is on a cluster."""
        await self.submit(name)
        placement = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1", FENCE_ANNOTATION: "300"}
        body = {"metadata": {"annotations": placement}, "spec": {"suspend": False}}
        return await self.dispatcher.patch(JOBS, name, body, self.namespace)

    async def change(self, name: str = "job", **body: Any) -> Object:
        """What a tenant does to a Job."""
        return await self.tenant.patch(JOBS, name, body, self.namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def people(cluster: BackgroundFleet, server: Server) -> AsyncIterator[People]:
    namespace = await a_namespace(server.client)
    await apply_all(server.client, manifest("admission/placement.yaml"))
    role = next(
        obj
        for obj in manifest("manifests/multimirror-webhook.yaml")
        if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", "multimirror-dispatcher")
    )
    await apply(server.client, role)
    await apply(server.client, _binding("RoleBinding", "edit", "tenant", namespace))
    await apply(server.client, _binding("ClusterRoleBinding", "cluster-admin", "gitops", namespace))
    await apply(server.client, _binding("ClusterRoleBinding", role["metadata"]["name"], "dispatcher", namespace))
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for account in ("tenant", "gitops", "dispatcher"):
            await server.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, namespace)
            assert isinstance(cluster.management, LocalCluster)
            config = cluster.management.kubeconfig_with_token(await token(server.client, account, namespace))
            clients[account] = await stack.enter_async_context(Client(Connection.from_kubeconfig(config)))
        people = People(namespace, **clients)
        await _in_force(people)
        yield people


def _binding(kind: str, role: str, account: str, namespace: str) -> Object:
    scope = {"namespace": namespace} if kind == "RoleBinding" else {}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": unique(account), **scope},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


async def _in_force(people: People) -> None:
    """Roles and policies are heard of a moment after they were written."""
    bad = a_job("probe", None, **OURS)
    bad["metadata"]["annotations"] = {CLUSTER_ANNOTATION: "east"}
    async with asyncio.timeout(DEADLINE):
        while not await _works(people.dispatcher.list(JOBS, people.namespace)):
            await asyncio.sleep(0.05)
        for client in (people.tenant, people.gitops):
            while not await _works(client.create(JOBS, a_job("probe"), people.namespace, dry_run=True)):
                await asyncio.sleep(0.05)
        while await _works(people.tenant.create(JOBS, bad, people.namespace, dry_run=True)):
            await asyncio.sleep(0.05)
        copy = a_job("probe", {ORIGIN_LABEL: "x"})
        while await _works(people.tenant.create(JOBS, copy, people.namespace, dry_run=True)):
            await asyncio.sleep(0.05)


async def _works(call: Any) -> bool:
    try:
        await call
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("key", PLACEMENT_ANNOTATIONS)
async def test_a_tenant_cannot_create_a_job_that_is_somewhere_already(people: People, key: str) -> None:
    with pytest.raises(Forbidden) as refused:
        await people.submit(**{key: "1"})
    assert f"metadata.annotations[{key}] is written by multimirror alone" in refused.value.message
    assert refused.value.message.endswith("remove it")


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        pytest.param({CLUSTER_ANNOTATION: "west"}, CLUSTER_ANNOTATION, id="to another cluster"),
        pytest.param({CLUSTER_ANNOTATION: None}, CLUSTER_ANNOTATION, id="away from its cluster"),
        pytest.param({ATTEMPT_ANNOTATION: "2"}, ATTEMPT_ANNOTATION, id="another attempt"),
        pytest.param({ATTEMPT_ANNOTATION: None}, ATTEMPT_ANNOTATION, id="as if it had never been placed"),
        pytest.param({FENCE_ANNOTATION: None}, FENCE_ANNOTATION, id="without its fence"),
    ],
)
async def test_a_tenant_cannot_say_where_a_job_is(people: People, annotations: Object, told: str) -> None:
    before = await people.placed()
    with pytest.raises(Forbidden, match="is written by multimirror alone") as refused:
        await people.change(metadata={"annotations": annotations})
    assert f"metadata.annotations[{told}]" in refused.value.message
    replaced = {**before, "metadata": {**before["metadata"], "annotations": {**annotations, CLUSTER_ANNOTATION: "x"}}}
    with pytest.raises(Forbidden, match="is written by multimirror alone"):
        await people.tenant.replace(JOBS, replaced)
    assert await people.tenant.get(JOBS, "job", people.namespace) == before


async def test_a_tenant_cannot_send_a_waiting_job_past_its_queue(people: People) -> None:
    await people.submit()
    with pytest.raises(Forbidden, match="is written by multimirror alone"):
        await people.change(
            metadata={"annotations": {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1"}}, spec={"suspend": False}
        )


async def test_everything_else_about_a_job_stays_its_users_business(people: People) -> None:
    await people.placed()
    for body in (
        {"spec": {"suspend": True}},
        {"spec": {"parallelism": 3}},
        {"metadata": {"annotations": {"mine": "yes", HOLD_ANNOTATION: "true"}, "labels": {"app": "x"}}},
        {"metadata": {"annotations": {"mine": None}}},
    ):
        await people.change(**body)
    await people.tenant.delete(JOBS, "job", people.namespace, propagation="Background")


async def test_a_job_leaves_its_queue_only_while_it_is_on_no_cluster(people: People) -> None:
    await people.submit()
    await people.change(metadata={"labels": {QUEUE_LABEL: "other"}})
    placement = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1"}
    await people.dispatcher.patch(JOBS, "job", {"metadata": {"annotations": placement}}, people.namespace)
    for queue in ("training", None):
        with pytest.raises(Forbidden, match="cannot be changed while the Job is on a cluster"):
            await people.change(metadata={"labels": {QUEUE_LABEL: queue}})
    taken_away = {"metadata": {"annotations": {CLUSTER_ANNOTATION: None}}}
    await people.dispatcher.patch(JOBS, "job", taken_away, people.namespace)
    await people.change(metadata={"labels": {QUEUE_LABEL: "training"}})


async def test_a_job_of_others_is_not_looked_at_once_it_is_there(people: People) -> None:
    """It is not ours, and cannot become ours."""
    await people.tenant.create(JOBS, a_job("job"), people.namespace)
    await people.change(metadata={"annotations": {CLUSTER_ANNOTATION: "theirs"}})
    await people.change(metadata={"annotations": {CLUSTER_ANNOTATION: "changed"}})
    await people.change(metadata={"annotations": {CLUSTER_ANNOTATION: None}}, spec={"suspend": True})


@pytest.mark.parametrize("spec", [OURS, {}], ids=["ours", "nobody's"])
@pytest.mark.parametrize("labels", [{}, {QUEUE_LABEL: "training"}], ids=["no queue", "a queue"])
@pytest.mark.parametrize("who", ["tenant", "gitops", "dispatcher"])
async def test_nobody_creates_a_job_with_a_placement(
    people: People, who: str, labels: dict[str, str], spec: Object
) -> None:
    job = a_job("placed", labels, **spec)
    job["metadata"]["annotations"] = {ADMITTED_QUEUE_ANNOTATION: "training"}
    with pytest.raises(Forbidden) as refused:
        await getattr(people, who).create(JOBS, job, people.namespace)
    if who != "dispatcher":  # which may not create Jobs in any case
        assert f"metadata.annotations[{ADMITTED_QUEUE_ANNOTATION}] is written by multimirror" in refused.value.message


@pytest.mark.parametrize("labels", [{}, {QUEUE_LABEL: ""}], ids=["no label", "an empty label"])
@pytest.mark.parametrize("who", ["tenant", "gitops"])
async def test_nobody_creates_a_job_of_ours_without_a_queue(people: People, who: str, labels: dict[str, str]) -> None:
    with pytest.raises(Forbidden, match="and the Job names no queue: add the label"):
        await getattr(people, who).create(JOBS, a_job("job", labels, **OURS), people.namespace)


async def test_what_deploys_for_tenants_cannot_place_a_job_either(people: People) -> None:
    """As cluster-admin it may do everything; that is not the same as being the dispatcher."""
    await people.submit()
    placement = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1", ADMITTED_QUEUE_ANNOTATION: "training"}
    body = {"metadata": {"annotations": placement}, "spec": {"suspend": False}}
    with pytest.raises(Forbidden, match="is written by multimirror alone"):
        await people.gitops.patch(JOBS, "job", body, people.namespace)
    with pytest.raises(Forbidden, match="is written by multimirror alone"):
        await people.gitops.patch(JOBS, "job", body, people.namespace, subresource="status")


async def test_a_person_who_must_can_act_as_the_dispatcher(people: People, server: Server) -> None:
    await people.submit()
    account = f"system:serviceaccount:{people.namespace}:dispatcher"
    body = {"metadata": {"annotations": {CLUSTER_ANNOTATION: "east"}}}
    kinds = {"Content-Type": "application/merge-patch+json", "Impersonate-User": account}
    await server.client.request("PATCH", JOBS.path(people.namespace, "job"), body=body, headers=kinds)


@pytest.mark.parametrize("who", ["tenant", "gitops"])
async def test_a_job_of_ours_stays_in_a_queue(people: People, who: str) -> None:
    await people.submit()
    for queue in (None, ""):
        body = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
        with pytest.raises(Forbidden, match="a Job of multimirror's is in a queue until it ends"):
            await getattr(people, who).patch(JOBS, "job", body, people.namespace)


@pytest.mark.parametrize("who", ["tenant", "gitops"])
async def test_the_pods_of_a_placed_job_stay_as_they_were_counted(people: People, who: str) -> None:
    """Kubernetes 1.36 lets one change the resources of a suspended Job."""
    client: Client = getattr(people, who)
    await people.submit()
    smaller = [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1m"}}}]
    body = {"spec": {"template": {"spec": {"containers": smaller}}}}
    await client.patch(JOBS, "job", body, people.namespace)  # while it waits: its user's business
    placement = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1"}
    await people.dispatcher.patch(JOBS, "job", {"metadata": {"annotations": placement}}, people.namespace)
    for change in (
        {"containers": [{**smaller[0], "resources": {"requests": {"cpu": "2"}}}]},
        {"nodeSelector": {"kubernetes.io/arch": "arm64"}},
    ):
        with pytest.raises(Forbidden, match=r"spec\.template: cannot be changed while the Job is on a cluster"):
            await client.patch(JOBS, "job", {"spec": {"template": {"spec": change}}}, people.namespace)
    await people.change(spec={"parallelism": 3, "ttlSecondsAfterFinished": 60}, metadata={"labels": {"app": "x"}})
    away = {"metadata": {"annotations": {CLUSTER_ANNOTATION: None}}}
    await people.dispatcher.patch(JOBS, "job", away, people.namespace)
    await client.patch(JOBS, "job", {"spec": {"template": {"spec": {"containers": smaller}}}}, people.namespace)


@pytest.mark.parametrize("key", LABELS)
@pytest.mark.parametrize("who", ["tenant", "gitops"])
async def test_nobody_else_makes_something_that_looks_like_a_copy(people: People, who: str, key: str) -> None:
    client: Client = getattr(people, who)
    told = f"metadata.labels[{key}] is kept for the copies that multimirror makes"
    for value in ("1", ""):
        with pytest.raises(Forbidden) as refused:
            await client.create(JOBS, a_job("copy", {key: value}), people.namespace)
        assert f"{told}: remove it" in refused.value.message
    await client.create(JOBS, a_job("job"), people.namespace)
    body = {"metadata": {"labels": {key: "1"}}}
    for subresource in (None, "status") if who == "gitops" else (None,):
        with pytest.raises(Forbidden) as refused:
            await client.patch(JOBS, "job", body, people.namespace, subresource=subresource)
        assert f"{told}: leave it alone" in refused.value.message


async def test_beside_the_webhook_a_placement_on_a_new_job_is_removed_and_the_job_is_taken(
    people: People, server: Server
) -> None:
    async with admission(server) as hook:
        job = a_job("copied", {QUEUE_LABEL: hook.queue})
        job["metadata"]["annotations"] = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "1", "kept": "yes"}
        namespace = people.namespace
        made = await people.tenant.create(JOBS, job, namespace)
        assert made["spec"].items() >= OURS.items()
        assert made["metadata"]["annotations"] == {"kept": "yes"}
        again = await people.gitops.create(JOBS, {**job, "metadata": {**job["metadata"], "name": "again"}}, namespace)
        assert again["metadata"]["annotations"] == {"kept": "yes"}
