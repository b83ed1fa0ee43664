"""Least privilege: what the manifests in deploy/worker grant on a real API server, and what they do not."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clusters.local import BinariesMissingError, LocalCluster, LocalFleet, LocalOptions, find_kubectl
from multimirror.kube import ApiError, Client, Connection
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.cluster_kind("local"),
    pytest.mark.xdist_group("worker-rbac"),
    pytest.mark.asyncio(loop_scope="module"),  # one control plane for all of them
]

DEPLOY = Path(__file__).parents[2] / "deploy" / "worker"


@dataclass(frozen=True)
class Worker:
    """A worker cluster with the manifests applied, and a client with the account's token."""

    cluster: LocalCluster
    admin: Client
    account: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker() -> AsyncIterator[Worker]:
    async with LocalFleet(LocalOptions(workers=0, nodes=False, controllers=())) as fleet:
        cluster = fleet.management
        await kubectl(cluster, "apply", "--server-side", "-f", str(DEPLOY / "account.yaml"))
        await kubectl(cluster, "apply", "--server-side", "-f", str(DEPLOY / "worker.yaml"))
        for team in ("team-a", "team-b"):
            await kubectl(cluster, "create", "namespace", team)
        await kubectl(cluster, "apply", "--server-side", "-n", "team-a", "-f", str(DEPLOY / "namespace.yaml"))
        token = await kubectl(cluster, "create", "token", "multimirror", "-n", "multimirror-system")
        async with (
            Client(Connection.from_kubeconfig(cluster.kubeconfig)) as admin,
            Client(Connection.from_kubeconfig(cluster.kubeconfig_with_token(token.strip()))) as account,
        ):
            yield Worker(cluster, admin, account)


async def kubectl(cluster: LocalCluster, *arguments: str) -> str:
    try:
        path = find_kubectl(cluster.binaries.version)
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    process = await asyncio.create_subprocess_exec(
        path, "--kubeconfig", cluster.kubeconfig_file, *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, arguments
    return told.decode()


def a_job(name: str, namespace: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"suspend": True, "template": {"spec": pod}}}


async def test_a_copy_can_live_its_whole_life(worker: Worker) -> None:
    account = worker.account
    start = (await account.list(JOBS, "team-a")).resource_version
    created = await account.create(JOBS, a_job("copy", "team-a"))
    assert (await account.get(JOBS, "copy", "team-a"))["metadata"]["uid"] == created["metadata"]["uid"]
    await account.patch(JOBS, "copy", {"spec": {"suspend": False, "activeDeadlineSeconds": 60}}, "team-a")
    await account.delete(JOBS, "copy", "team-a", propagation="Background", uid=created["metadata"]["uid"])
    seen = []
    async with asyncio.timeout(DEADLINE):
        async with contextlib.aclosing(account.watch(JOBS, "team-a", resource_version=start)) as events:
            async for event in events:
                seen.append(event.type)
                if event.type == "DELETED":
                    break
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_what_is_read_to_explain_a_copy_and_to_choose_a_worker_can_be_read(worker: Worker) -> None:
    account = worker.account
    pod = {"metadata": {"name": "p"}, "spec": a_job("x", "x")["spec"]["template"]["spec"]}
    await worker.admin.create(PODS, pod, "team-a")
    assert [item["metadata"]["name"] for item in (await account.list(PODS, "team-a")).items] == ["p"]
    await account.get(PODS, "p", "team-a")
    await account.list(EVENTS, "team-a")
    await account.list(NODES)
    await account.list(NAMESPACES)
    await account.get(NAMESPACES, "team-b")
    await account.request("GET", PODS.path("team-a", "p", "log"))
    review = {
        "spec": {"resourceAttributes": {"group": "batch", "resource": "jobs", "verb": "create", "namespace": "team-b"}}
    }
    answer = await account.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    assert json.loads(answer.body)["status"]["allowed"] is False


CORE, BATCH, RBAC = "/api/v1", "/apis/batch/v1", "/apis/rbac.authorization.k8s.io/v1"
OWN_TOKEN = f"{CORE}/namespaces/multimirror-system/serviceaccounts/multimirror/token"
TOKEN_REQUEST = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "spec": {"expirationSeconds": 3600},
}
ROLE_BINDING = {
    "metadata": {"name": "more"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "multimirror", "namespace": "multimirror-system"}],
}
REFUSED = [
    ("list secrets", "GET", f"{CORE}/namespaces/team-a/secrets", None),
    ("read a secret", "GET", f"{CORE}/namespaces/team-a/secrets/s", None),
    ("read config maps", "GET", f"{CORE}/namespaces/team-a/configmaps", None),
    ("list another namespace's jobs", "GET", f"{BATCH}/namespaces/team-b/jobs", None),
    ("create a job in another namespace", "POST", f"{BATCH}/namespaces/team-b/jobs", a_job("j", "team-b")),
    ("read another namespace's pods", "GET", f"{CORE}/namespaces/team-b/pods", None),
    ("list the jobs of all namespaces", "GET", f"{BATCH}/jobs", None),
    ("list the pods of all namespaces", "GET", f"{CORE}/pods", None),
    ("exec into a pod", "POST", f"{CORE}/namespaces/team-a/pods/p/exec?command=sh", None),
    ("attach to a pod", "POST", f"{CORE}/namespaces/team-a/pods/p/attach", None),
    ("forward a pod's ports", "POST", f"{CORE}/namespaces/team-a/pods/p/portforward", None),
    ("create a pod", "POST", f"{CORE}/namespaces/team-a/pods", {"metadata": {"name": "p"}}),
    ("delete a pod", "DELETE", f"{CORE}/namespaces/team-a/pods/p", None),
    ("replace a job", "PUT", f"{BATCH}/namespaces/team-a/jobs/j", a_job("j", "team-a")),
    ("replace a job's status", "PUT", f"{BATCH}/namespaces/team-a/jobs/j/status", a_job("j", "team-a")),
    ("delete all jobs at once", "DELETE", f"{BATCH}/namespaces/team-a/jobs", None),
    ("create a cron job", "POST", f"{BATCH}/namespaces/team-a/cronjobs", {"metadata": {"name": "c"}}),
    ("read a single node", "GET", f"{CORE}/nodes/n", None),
    ("create a namespace", "POST", f"{CORE}/namespaces", {"metadata": {"name": "n"}}),
    ("delete a namespace", "DELETE", f"{CORE}/namespaces/team-a", None),
    ("write an event", "POST", f"{CORE}/namespaces/team-a/events", {"metadata": {"name": "e"}}),
    ("make another account a token", "POST", f"{CORE}/namespaces/multimirror-system/serviceaccounts/default/token", {}),
    ("make itself a token that is bound to nothing", "POST", OWN_TOKEN, TOKEN_REQUEST),
    ("make a Secret in a team's namespace", "POST", f"{CORE}/namespaces/team-a/secrets", {"metadata": {"name": "s"}}),
    ("read a Secret of its own namespace", "GET", f"{CORE}/namespaces/multimirror-system/secrets/s", None),
    ("delete a Secret of its own namespace", "DELETE", f"{CORE}/namespaces/multimirror-system/secrets/s", None),
    ("bind itself to more", "POST", f"{RBAC}/namespaces/team-a/rolebindings", ROLE_BINDING),
]


async def test_everything_else_is_refused(worker: Worker) -> None:
    done = []
    for what, method, path, body in REFUSED:
        try:
            await worker.account.request(method, path, body=body)
        except Forbidden:
            continue
        except ApiError as error:
            done.append(f"{what}: {error}")
        else:
            done.append(what)
    assert done == []


async def test_the_account_holds_exactly_what_the_manifests_grant(worker: Worker) -> None:
    """Asked of the server itself; every account may also ask about itself and read the API's own description."""
    review = {"spec": {"namespace": "team-a"}}
    answer = await worker.account.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=review)
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in json.loads(answer.body)["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if not resource.startswith("selfsubject")
    }
    read = {"get", "list", "watch"}
    assert granted == {
        ("batch", "jobs"): read | {"create", "patch", "delete"},
        ("", "pods"): read,
        ("", "pods/log"): read,
        ("", "events"): read,
        ("", "nodes"): {"list", "watch"},
        ("", "namespaces"): read,
        ("multimirror.dev", "copies"): {"make"},
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {"get"},
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {"get"},
    }
