"""The life of a worker and of its Jobs, as an operator sees it: each step a command, on embedded and real clusters."""

import asyncio
import base64
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.kube import Client, resources
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, SECRETS
from tests.e2e.cli.operating import Operator, embedded_only, proxied, real_only, says, through
from tests.e2e.dispatching import SYSTEM, a_job, cluster_of, finish_pods, finished, running, until
from tests.waiting import DEADLINE, awaited

Json = dict[str, Any]
TEAM = "default"


@pytest.fixture
def workers(operator: Operator) -> Iterator[Operator]:
    """Two workers, east and west, and a queue that prefers the first; nothing of it afterwards."""
    operator.joined("east", "worker-1")
    operator.joined("west", "worker-2")
    asyncio.run(_queue(operator, "batch", workers={"names": ["east", "west"]}, placement="Ordered"))
    yield operator
    asyncio.run(_clear(operator))
    for name in ("east", "west"):
        operator.says("leave", name, "--force")


async def _queue(operator: Operator, name: str, **spec: Any) -> None:
    header = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": {"name": name}}
    async with operator.client() as client:
        await client.create(MIRROR_QUEUES, {**header, "spec": spec})


async def _clear(operator: Operator) -> None:
    async with operator.client() as client:
        await client.request("DELETE", JOBS.path(TEAM), {"propagationPolicy": "Background"})
        for queue in (await client.list(MIRROR_QUEUES)).items:
            await client.delete(MIRROR_QUEUES, queue["metadata"]["name"])
    for worker in ("worker-1", "worker-2"):
        async with operator.client(worker) as client:
            await client.request("DELETE", JOBS.path(TEAM), {"propagationPolicy": "Background"})


def submitted(
    operator: Operator, name: str, what: Any, *, queue: str = "batch", indexes: int = 0, **behaviour: str
) -> Json:
    """Create an ordinary Job, and wait until it is so."""
    job = a_job(name, queue=queue, **behaviour)
    if indexes:
        job["spec"] |= {"completionMode": "Indexed", "completions": indexes, "parallelism": indexes}

    async def submit() -> Json:
        async with operator.client() as client:
            await client.create(JOBS, job, TEAM)
            return await until(client, JOBS, TEAM, name, what)

    return asyncio.run(submit())


def now(operator: Operator, cluster: str, resource: Any, name: str, namespace: str | None = None) -> Json | None:
    """An object as it is."""

    async def get() -> Json | None:
        async with operator.client(cluster) as client:
            try:
                return await client.get(resource, name, namespace)
            except NotFound:
                return None

    return asyncio.run(get())


# --- join and leave ---------------------------------------------------------------------------------------------------


def test_an_address_for_the_dispatcher_alone_is_not_tried_from_here(operator: Operator) -> None:
    """As on kind: the name is one of the management cluster's network."""
    internal = "https://solo.internal:6443"
    joined = operator.joined("solo", "worker-1", "--server", internal, "--timeout", "0s")
    assert f"the dispatcher uses {internal}, which was not tried from here" in joined.out
    assert "`kubectl wait --for=condition=Ready workercluster/solo`" in joined.out
    stored = now(operator, "management", SECRETS, "worker-solo", SYSTEM)
    assert stored is not None
    config = yaml.safe_load(base64.b64decode(stored["data"]["kubeconfig"]))
    assert config["clusters"][0]["cluster"]["server"] == internal
    try:

        def is_told(_: None) -> bool:
            cluster = now(operator, "management", WORKER_CLUSTERS, "solo") or {}
            conditions = (cluster.get("status") or {}).get("conditions") or ()
            ready = [each["message"] for each in conditions if each["type"] == "Ready"]
            return any(internal in each and "given with `join --server`" in each for each in ready)

        awaited(lambda: None, is_told)
        again = operator.joined("solo", "worker-1", "--weight", "2", "--timeout", "0s")
        assert f"the dispatcher uses {internal}, as before" in again.out, "what is not given stays as it is"
    finally:
        left = operator.says("leave", "solo", "--force")
    assert left.code == 0, left
    assert "revoked the token of solo" in left.out, "by the address of the join"


def test_a_cluster_becomes_a_worker_with_one_command_and_leaves_without_a_trace(operator: Operator) -> None:
    joined = operator.joined("solo", "worker-1", "--label", "region=eu,price=low", "--weight", "3", "--max-jobs", "7")
    assert "solo is ready" in joined.out
    cluster = now(operator, "management", WORKER_CLUSTERS, "solo")
    assert cluster is not None
    assert cluster["spec"]["labels"] == {"region": "eu", "price": "low"}
    assert (cluster["spec"]["weight"], cluster["spec"]["maxJobs"]) == (3, 7)
    assert now(operator, "worker-1", resources.VALIDATING_POLICY_BINDINGS, "multimirror-copies") is not None
    left = operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker())
    assert left.code == 0, left
    assert now(operator, "management", WORKER_CLUSTERS, "solo") is None
    assert now(operator, "management", SECRETS, "worker-solo", SYSTEM) is None
    for resource, name in (
        (resources.CLUSTER_ROLES, "multimirror-worker"),
        (resources.CLUSTER_ROLE_BINDINGS, "multimirror-worker-jobs"),
        (resources.VALIDATING_POLICIES, "multimirror-copies"),
        (resources.VALIDATING_POLICY_BINDINGS, "multimirror-copies"),
    ):
        assert now(operator, "worker-1", resource, name) is None


def test_what_is_stored_is_the_accounts_own_credential_and_nothing_of_the_administrators(operator: Operator) -> None:
    operator.joined("solo")
    secret = now(operator, "management", SECRETS, "worker-solo", SYSTEM)
    assert secret is not None
    stored = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
    assert [set(user["user"]) for user in stored["users"]] == [{"token"}]
    administrator = yaml.safe_load(Path(operator.worker()).read_text())["users"][0]["user"]
    assert stored["users"][0]["user"]["token"] not in administrator.values()
    operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker())


def test_joining_again_changes_nothing_but_what_is_asked_for(operator: Operator) -> None:
    operator.joined("solo", "worker-1", "--weight", "5")
    before = now(operator, "management", SECRETS, "worker-solo", SYSTEM)
    operator.joined("solo", "worker-1", "--max-jobs", "2")
    after = now(operator, "management", SECRETS, "worker-solo", SYSTEM)
    assert before is not None
    assert after is not None
    assert before["data"] == after["data"]
    cluster = now(operator, "management", WORKER_CLUSTERS, "solo")
    assert cluster is not None
    assert (cluster["spec"]["weight"], cluster["spec"]["maxJobs"]) == (5, 2)
    operator.joined("solo", "worker-1", "--new-token")
    renewed = now(operator, "management", SECRETS, "worker-solo", SYSTEM)
    assert renewed is not None
    operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker())


def test_namespaces_are_mapped_and_only_they_are_granted(operator: Operator) -> None:
    refused = operator.says("join", "solo", "--kubeconfig", operator.worker(), "--namespaces", "team-a,team-b=research")
    assert refused.code == 4
    assert "worker solo has no namespace research, team-a" in refused.err
    assert now(operator, "management", WORKER_CLUSTERS, "solo") is None
    operator.joined("solo", "worker-1", "--namespaces", "team-a,team-b=research", "--create-namespaces")
    cluster = now(operator, "management", WORKER_CLUSTERS, "solo")
    assert cluster is not None
    assert cluster["spec"]["namespaces"] == [
        {"name": "team-a", "workerNamespace": "team-a"},
        {"name": "team-b", "workerNamespace": "research"},
    ]
    assert now(operator, "worker-1", resources.ROLE_BINDINGS, "multimirror-worker-jobs", "research") is not None
    assert now(operator, "worker-1", resources.CLUSTER_ROLE_BINDINGS, "multimirror-worker-jobs") is None
    operator.joined("solo", "worker-1", "--all-namespaces")
    narrowed = operator.joined("solo", "worker-1", "--namespaces", "team-a")
    assert "an earlier join granted every namespace (clusterrolebinding multimirror-worker-jobs)" in narrowed.out
    left = operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker())
    assert left.code == 0, left
    assert now(operator, "worker-1", resources.ROLE_BINDINGS, "multimirror-worker-jobs", "research") is None


@real_only
def test_a_cluster_that_caps_tokens_is_asked_for_one_that_lasts_only_if_that_is_wanted(
    operator: Operator, tmp_path: Path
) -> None:
    server = yaml.safe_load(Path(operator.worker()).read_text())["clusters"][0]["cluster"]["server"]
    with proxied(operator.worker(), token_ends="2026-11-17T00:00:00Z") as address:
        path = tmp_path / "capped.yaml"
        path.write_text(yaml.safe_dump(through(operator.worker(), address)))
        answer = operator.says("join", "solo", "--kubeconfig", str(path), "--server", server, "--all-namespaces")
    assert answer.code == 0, answer
    assert "note: this cluster gives tokens no more than" in answer.out
    assert now(operator, "worker-1", SECRETS, "multimirror-token", SYSTEM) is None
    answer = operator.says("join", "solo", "--kubeconfig", operator.worker(), "--lasting-token")
    assert answer.code == 0, answer
    assert "which does not expire" in answer.out
    left = operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker())
    assert left.code == 0, left
    assert now(operator, "worker-1", SECRETS, "multimirror-token", SYSTEM) is None


def test_all_pods_are_shown_to_us_only_where_that_is_asked_for_and_leave_takes_it_back(operator: Operator) -> None:
    operator.joined("solo", "worker-1", "--all-namespaces")
    binding = resources.CLUSTER_ROLE_BINDINGS, "multimirror-worker-pods"
    assert now(operator, "worker-1", *binding) is None
    answer = operator.says("join", "solo", "--kubeconfig", operator.worker(), "--free-capacity")
    assert answer.code == 0, answer
    assert "may list the pods of all namespaces there, other tenants' among them" in answer.out + answer.err
    assert now(operator, "worker-1", *binding) is not None
    cluster = now(operator, "management", WORKER_CLUSTERS, "solo")
    assert cluster is not None
    assert cluster["spec"]["capacity"] == {"mode": "Free"}
    assert operator.says("leave", "solo", "--cleanup", "--kubeconfig", operator.worker()).code == 0
    assert now(operator, "worker-1", *binding) is None


@embedded_only
def test_the_management_cluster_is_not_joined_by_mistake(operator: Operator) -> None:
    answer = operator.says("join", "self", "--kubeconfig", operator.management, "--all-namespaces")
    assert answer.code == 2
    assert "--kubeconfig names the management cluster itself" in answer.err


def test_the_management_cluster_can_be_its_own_worker_and_keeps_its_account(operator: Operator) -> None:
    answer = operator.says("join", "self", "--kubeconfig", operator.management, "--same-cluster", "--all-namespaces")
    assert answer.code == 0, answer
    refused = operator.says("leave", "self", "--cleanup", "--kubeconfig", operator.management)
    assert refused.code == 4
    assert "self is the management cluster itself" in refused.err
    assert operator.says("leave", "self").code == 0
    assert now(operator, "management", resources.SERVICE_ACCOUNTS, "multimirror", SYSTEM) is not None


@embedded_only
def test_a_name_is_not_given_to_another_cluster_while_it_is_in_use(workers: Operator) -> None:
    answer = workers.says("join", "east", "--kubeconfig", workers.worker("worker-2"))
    assert (answer.code, "east is the name of another cluster" in answer.err) == (4, True), answer


@embedded_only
def test_leave_cleans_up_no_other_cluster_than_the_worker(workers: Operator) -> None:
    answer = workers.says("leave", "east", "--cleanup", "--kubeconfig", workers.worker("worker-2"))
    assert answer.code == 2
    assert "names another cluster than worker east" in answer.err
    assert now(workers, "management", WORKER_CLUSTERS, "east") is not None


# --- cordon, drain, leave ---------------------------------------------------------------------------------------------


def test_a_drain_waits_for_jobs_and_says_which(workers: Operator) -> None:
    submitted(workers, "long", running, never_finish="true")
    gave_up = workers.says("drain", "east", "--timeout", "1s")
    assert gave_up.code == 1
    assert "1 Job still there: default/long" in gave_up.err
    assert workers.says("uncordon", "east").out == "east takes Jobs again\n"
    assert workers.says("cordon", "east").out == "east is cordoned\n"
    other = submitted(workers, "next", lambda job: cluster_of(job) is not None)
    assert cluster_of(other) == "west"


def test_a_drain_with_eviction_moves_what_runs(workers: Operator) -> None:
    submitted(workers, "long", running, never_finish="true")
    drained = workers.says("drain", "east", "--evict", "--timeout", "60s")
    assert drained.code == 0, drained
    assert drained.out.endswith("east is drained\n")

    async def moved() -> Json:
        async with workers.client() as client:
            return await until(client, JOBS, TEAM, "long", lambda job: cluster_of(job) == "west" and running(job))

    asyncio.run(moved())
    told = workers.says("explain", "job/long")
    assert "attempt 2" in told.out
    assert "CopyVanished" in told.out


def test_who_leaves_is_drained_first_and_finished_copies_go(workers: Operator) -> None:
    submitted(workers, "short", finished)
    left = workers.says("leave", "east", "--timeout", "60s")
    assert left.code == 0, left
    assert "removed 1 finished copy there" in left.out
    assert now(workers, "worker-1", JOBS, "short", TEAM) is None or "deletionTimestamp" in str(
        now(workers, "worker-1", JOBS, "short", TEAM)
    )
    again = workers.says("leave", "east")
    assert (again.code, "there is no WorkerCluster east" in again.err) == (4, True)


# --- get --------------------------------------------------------------------------------------------------------------


def test_jobs_are_shown_with_queue_cluster_manager_and_why_they_wait(workers: Operator) -> None:
    asyncio.run(_queue(workers, "far", workers={"names": ["north"]}))
    submitted(workers, "done", finished)
    submitted(workers, "stuck", lambda _job: True, queue="far")
    shown = awaited(lambda: workers.says("get", "jobs").out, lambda out: "there is no such WorkerCluster" in out)
    lines = {line.split()[0]: line.split(maxsplit=7) for line in shown.splitlines()}
    assert lines["NAME"] == ["NAME", "QUEUE", "CLUSTER", "STATUS", "DONE", "AGE", "MANAGED-BY", "WHY"]
    assert lines["done"][1:5] == ["batch", "east", "Complete", "1/1"]
    assert lines["stuck"][1:5] == ["far", "<none>", "Waiting", "0/1"]
    assert lines["stuck"][6] == "multimirror"
    one = workers.says("get", "job", "done", "-o", "json").json
    assert one["metadata"]["annotations"][CLUSTER_ANNOTATION] == "east"
    some = yaml.safe_load(workers.says("get", "jobs", "-A", "-l", f"{QUEUE_LABEL}=far", "-o", "yaml").out)
    assert [item["metadata"]["name"] for item in some["items"]] == ["stuck"]
    assert "multimirror.dev/dispatcher" in workers.says("get", "jobs", "-o", "wide").out
    clusters = workers.says("get", "clusters").out.splitlines()
    assert [line.split()[:3] for line in clusters] == [
        ["NAME", "READY", "CORDONED"],
        ["east", "yes", "no"],
        ["west", "yes", "no"],
    ]
    awaited(lambda: workers.says("get", "queue", "far", "-o", "wide").out, lambda out: "north" in out)


def test_a_watch_shows_a_job_on_its_way(workers: Operator) -> None:
    """Why it waits, where it runs and how it ended, in this order; each step is taken when the one before was shown."""
    asyncio.run(_queue(workers, "closed", workers={"names": ["north"]}))
    command = [sys.executable, "-m", "multimirror.cli", "get", "jobs", "--watch", "--kubeconfig", workers.management]
    rows: list[list[str]] = []

    def shown(watching: "subprocess.Popen[str]", *expected: str) -> None:
        assert watching.stdout is not None
        for line in watching.stdout:
            rows.append(line.rstrip().split(maxsplit=7))
            if all(text in line for text in expected):
                return
        pytest.fail(f"the watch ended before it showed {expected}: {rows}")

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            submitted(workers, "seen", lambda _job: True, queue="closed", never_finish="true", exit_code="3")
            shown(watching, "seen", "Waiting", "north: there is no such WorkerCluster")
            asyncio.run(_opened(workers, "closed", ["east"]))
            shown(watching, "seen", "east", "Running")
            asyncio.run(_finished(workers, "worker-1", "seen"))
            shown(watching, "seen", "east", "Failed", "BackoffLimitExceeded")
        finally:
            watching.terminate()
    header, *rows = rows
    assert header == ["NAME", "QUEUE", "CLUSTER", "STATUS", "DONE", "AGE", "MANAGED-BY", "WHY"]
    assert {row[0] for row in rows} == {"seen"}, "the header comes once"
    said = [(*row[:5], *row[6:]) for row in rows]
    assert all(one != next_one for one, next_one in itertools.pairwise(said)), (
        "a row is shown when it says another thing"
    )
    on_its_way = [place for place, _ in itertools.groupby((row[2], row[3]) for row in rows if row[3] != "Starting")]
    assert on_its_way == [("<none>", "Waiting"), ("east", "Running"), ("east", "Failed")]


async def _opened(operator: Operator, queue: str, workers: list[str]) -> None:
    async with operator.client() as client:
        await client.patch(MIRROR_QUEUES, queue, {"spec": {"workers": {"names": workers}}})


async def _finished(operator: Operator, worker: str, name: str) -> None:
    async with operator.client(worker) as client:
        await finish_pods(client, TEAM, name)


# --- explain, logs, events --------------------------------------------------------------------------------------------


def test_a_job_is_explained_from_its_creation_to_its_end(workers: Operator) -> None:
    submitted(workers, "broken", finished, exit_code="3")
    told = workers.says("explain", "job/broken")
    assert told.code == 0, told
    assert told.out.startswith("Job default/broken: Failed on east (queue batch)")
    order = [
        "created; admitted",
        "placed: runs on worker east",
        "copy made",
        "started",
        "failed with exit code 3",
        "Failed (Backoff",
    ]
    places = [told.out.index(part) for part in order]
    assert places == sorted(places), told.out
    structured = workers.says("explain", "broken", "-o", "json").json
    assert structured["cluster"] == "east"
    assert structured["timeline"][0]["cluster"] == "management"


def until_says(operator: Operator, command: tuple[str, ...], *words: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not all(word in (said := operator.says(*command)).out for word in words):
        assert time.monotonic() < deadline, said


def test_logs_and_events_come_straight_from_the_worker(workers: Operator) -> None:
    submitted(workers, "talks", finished, indexes=2)
    logs = workers.says("logs", "job/talks")
    assert logs.code == 0, logs
    assert len([line for line in logs.out.splitlines() if line.startswith("[talks-")]) >= 2
    one = workers.says("logs", "job/talks", "--index", "1")
    assert "[" not in one.out
    assert one.out.strip()
    followed = workers.says("logs", "talks", "-f")
    assert followed.code == 0
    assert len(followed.out.splitlines()) == len(logs.out.splitlines())
    until_says(workers, ("events", "job/talks"), "Assigned", "SuccessfulCreate")  # events come a little later
    assert workers.says("logs", "job/talks", "--pod", "nope").code == 1


@embedded_only
def test_a_job_without_a_worker_has_no_logs_yet(workers: Operator) -> None:
    asyncio.run(_queue(workers, "far", workers={"names": ["north"]}))
    submitted(workers, "stuck", lambda _job: True, queue="far")
    answer = workers.says("logs", "job/stuck")
    assert (answer.code, answer.err.splitlines()[0]) == (1, "error: Job stuck has no worker yet")
    assert "Waiting" in workers.says("explain", "job/stuck").out.splitlines()[0]


def test_a_job_of_this_clusters_own_has_logs_and_a_story_too(workers: Operator) -> None:
    async def submit() -> None:
        async with workers.client() as client:
            job = a_job("local", queue="batch")
            job["metadata"]["labels"] = {}
            job["spec"] |= {"suspend": False}
            del job["spec"]["managedBy"]
            await client.create(JOBS, job, TEAM)
            await until(client, JOBS, TEAM, "local", finished)

    asyncio.run(submit())
    assert "runs on this cluster" in workers.says("explain", "job/local").out
    assert workers.says("logs", "job/local").out.strip()
    assert "kubernetes" in workers.says("get", "job", "local").out


@embedded_only
def test_the_shell_completes_names(workers: Operator) -> None:
    submitted(workers, "completed-by-the-shell", lambda _job: True)
    for line, expected in (
        ("multimirror cordon ", "east"),
        ("multimirror logs job/comp", "job/completed-by-the-shell"),
    ):
        words = line.split(" ")
        asked = {"_MULTIMIRROR_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        environment = {**os.environ, **asked, "KUBECONFIG": workers.management}
        command = [sys.executable, "-c", "from multimirror.cli import main; main()"]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE)
        assert f"plain,{expected}" in told.stdout.splitlines(), told


@real_only
def test_who_may_not_read_the_workers_credentials_is_told_so(workers: Operator, tmp_path: Path) -> None:
    submitted(workers, "talks", finished)
    asyncio.run(_viewer(workers, tmp_path / "viewer.yaml"))
    answer = says("logs", "job/talks", "--kubeconfig", str(tmp_path / "viewer.yaml"))
    assert answer.code == 4
    assert "you may not read Secret multimirror-system/worker-east" in answer.err
    told = says("explain", "job/talks", "--kubeconfig", str(tmp_path / "viewer.yaml"))
    assert told.code == 0
    assert "the worker's side is not shown: you may not read Secret" in told.out


async def _viewer(operator: Operator, path: Path) -> None:
    """Somebody who may see Jobs and our kinds, and no Secrets."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["multimirror.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]
    async with operator.client() as client:
        await client.create(resources.SERVICE_ACCOUNTS, {"metadata": {"name": "viewer"}}, TEAM)
        await client.create(resources.CLUSTER_ROLES, {"metadata": {"name": "viewer"}, "rules": rules})
        binding = {
            "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": resources.CLUSTER_ROLES.group, "kind": "ClusterRole", "name": "viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": TEAM}],
        }
        await client.create(resources.CLUSTER_ROLE_BINDINGS, binding)
        token = await _token(client)
    config = yaml.safe_load(Path(operator.management).read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))


async def _token(client: Client) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await client.request("POST", resources.SERVICE_ACCOUNTS.path(TEAM, "viewer", "token"), body=body)
    return str(json.loads(answer.body)["status"]["token"])
