"""What an operator breaks, the doctor finds: one thing at a time, on embedded clusters and on real ones."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from multimirror.api import (
    ATTEMPT_LABEL,
    DEFAULT_QUEUE_LABEL,
    MIRROR_QUEUES,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    SIGNATURE_LABEL,
    WORKER_CLUSTERS,
    crds,
)
from multimirror.api.ownership import Signer
from multimirror.cli.placement_policy import apply_placement_policy
from multimirror.kube import Client, resources
from multimirror.kube.errors import Conflict
from multimirror.kube.resources import JOBS, MUTATING_WEBHOOKS, NAMESPACES, SECRETS
from multimirror.workers import find_copy_key, identity_of
from tests.e2e.cli.operating import Operator, embedded_only, proxied, real_only, says, through
from tests.e2e.dispatching import SYSTEM, a_job
from tests.waiting import awaited

Json = dict[str, Any]
TEAM = "default"


@pytest.fixture
def fleet(operator: Operator) -> Iterator[Operator]:
    """One worker, one queue, nothing wrong; whatever a test does to them is undone."""
    operator.joined("east", "worker-1", "--create-namespaces")
    _do(operator, _queue("batch"))
    yield operator
    if operator.process is None:
        operator.start()
    _do(operator, _clear)
    operator.says("leave", "twin", "--force")
    operator.says("leave", "east", "--force", "--cleanup", "--kubeconfig", operator.worker())


@pytest.fixture
def stopped(fleet: Operator) -> Operator:
    """The same, and no dispatcher to put things right again."""
    fleet.stop()
    return fleet


def _do(operator: Operator, work: Callable[[Client], Awaitable[Any]], cluster: str = "management") -> Any:
    async def done() -> Any:
        async with operator.client(cluster) as client:
            return await work(client)

    return asyncio.run(done())


def _queue(name: str, **spec: Any) -> Callable[[Client], Awaitable[Any]]:
    header = {"apiVersion": MIRROR_QUEUES.api_version, "kind": MIRROR_QUEUES.kind, "metadata": {"name": name}}
    return lambda client: client.create(MIRROR_QUEUES, {**header, "spec": spec})


async def _clear(client: Client) -> None:
    await client.request("DELETE", JOBS.path(TEAM), {"propagationPolicy": "Background"})
    for queue in (await client.list(MIRROR_QUEUES)).items:
        await client.delete(MIRROR_QUEUES, queue["metadata"]["name"])


def findings(operator: Operator, *arguments: str) -> list[Json]:
    """All that the doctor says; its exit code says whether there is a fault among it."""
    answer = operator.says("doctor", "-o", "json", *arguments)
    found: list[Json] = answer.json
    assert answer.code == (1 if any(each["level"] == "fault" for each in found) else 0), answer
    assert all(each["remedy"] for each in found if each["level"] == "fault")
    return found


def finds(operator: Operator, check: str, subject: str, text: str, *arguments: str) -> None:
    """The doctor finds this fault, as soon as it can be seen."""

    def found(findings: list[Json]) -> bool:
        faults = [each for each in findings if each["level"] == "fault"]
        return any((each["check"], each["subject"]) == (check, subject) and text in each["message"] for each in faults)

    awaited(lambda: findings(operator, *arguments), found)


def test_a_fleet_in_order_has_no_faults(fleet: Operator) -> None:
    answer = fleet.says("doctor")
    assert answer.code == 0, answer
    assert "All is well" in answer.out, answer.out
    assert fleet.says("doctor", "--quiet").out.startswith("All is well")


# --- the management cluster -------------------------------------------------------------------------------------------


def test_faults_1_and_2_the_dispatcher_does_not_run_and_its_webhook_does_not_answer(stopped: Operator) -> None:
    finds(stopped, "Dispatcher", "management", "nobody holds its Lease")
    finds(stopped, "Admission", "management", "the webhook does not answer")


@embedded_only
def test_fault_3_the_webhook_is_not_registered_and_a_job_slips_through(stopped: Operator) -> None:
    _do(stopped, lambda client: client.delete(MUTATING_WEBHOOKS, "multimirror"))
    finds(stopped, "Admission", "management", "neither webhook nor policies are there")
    job = a_job("stray", queue="batch")
    del job["spec"]["managedBy"]
    _do(stopped, lambda client: client.create(JOBS, job, TEAM))
    finds(stopped, "Jobs", "Jobs", "ask for a queue, but run on this cluster: default/stray")


@embedded_only
def test_fault_4_the_webhooks_ca_is_another(stopped: Operator) -> None:
    authority = trustme.CA().cert_pem.bytes()

    async def another(client: Client) -> None:
        live = await client.get(MUTATING_WEBHOOKS, "multimirror")
        for webhook in live["webhooks"]:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(authority).decode()
        await client.replace(MUTATING_WEBHOOKS, live)

    _do(stopped, another)
    finds(stopped, "Certificates", "management", "the webhook's CA is not current")


def test_fault_5_a_definition_is_that_of_another_version(fleet: Operator) -> None:
    wanted = next(each for each in crds() if each["spec"]["names"]["kind"] == "MirrorQueue")

    async def age(client: Client) -> None:
        while True:
            live = await client.get(resources.CRDS, wanted["metadata"]["name"])
            del live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["fence"]
            with contextlib.suppress(Conflict):
                await client.replace(resources.CRDS, live)
                return

    async def renew(client: Client) -> None:
        await client.patch(
            resources.CRDS, wanted["metadata"]["name"], wanted, patch_type="apply", field_manager="test", force=True
        )

    _do(fleet, age)
    try:
        finds(fleet, "Kinds", "management", "mirrorqueues.multimirror.dev is that of another version")
    finally:
        _do(fleet, renew)
    assert not [each for each in findings(fleet) if each["check"] == "Kinds" and each["level"] != "ok"]


@embedded_only
def test_fault_6_an_old_management_cluster(fleet: Operator, tmp_path: Path) -> None:
    with proxied(fleet.management, version="v1.29.3") as address:
        path = tmp_path / "old.yaml"
        path.write_text(yaml.safe_dump(through(fleet.management, address)))
        found = says("doctor", "-o", "json", "--kubeconfig", str(path)).json
    assert ("fault", "management") in [(each["level"], each["subject"]) for each in found if each["check"] == "Version"]


@embedded_only
def test_a_join_without_a_dispatcher_does_everything_and_says_that_nobody_looks(stopped: Operator) -> None:
    answer = stopped.says("join", "twin", "--kubeconfig", stopped.worker("worker-2"), "--all-namespaces")
    assert answer.code == 1
    assert answer.err.startswith("error: twin is joined, but no dispatcher looks at it: ")
    assert _do(stopped, lambda client: client.get(WORKER_CLUSTERS, "twin"))["spec"]["kubeconfig"]


def test_whoever_may_write_jobs_could_place_them_where_the_policy_is_missing_or_another(fleet: Operator) -> None:
    name, audit = "multimirror-placement", {"spec": {"validationActions": ["Audit"]}}
    _do(fleet, lambda client: client.patch(resources.VALIDATING_POLICY_BINDINGS, name, audit))
    try:
        (found,) = (each for each in findings(fleet) if each["check"] == "Placement")
        assert (found["level"], "spec.validationActions" in found["message"]) == ("warning", True), found
        _do(fleet, lambda client: client.delete(resources.VALIDATING_POLICY_BINDINGS, name))
        finds(fleet, "Placement", "management", f"there is no ValidatingAdmissionPolicyBinding {name}")
    finally:
        _do(fleet, apply_placement_policy)
    assert "only the dispatcher says where Jobs run" in fleet.says("doctor").out


# --- workers ----------------------------------------------------------------------------------------------------------


def _stored(operator: Operator, change: Callable[[Json], None], **annotations: str) -> None:
    """Change the kubeconfig that is stored for east, and what stands beside it."""

    async def changed(client: Client) -> None:
        secret = await client.get(SECRETS, "worker-east", SYSTEM)
        config = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
        change(config)
        data = base64.b64encode(yaml.safe_dump(config).encode()).decode()
        beside = {f"multimirror.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        changed = {"metadata": {"annotations": beside}, "data": {"kubeconfig": data}}
        await client.patch(SECRETS, "worker-east", changed, SYSTEM)

    _do(operator, changed)


def test_fault_7_the_secret_of_a_worker_is_gone(fleet: Operator) -> None:
    _do(fleet, lambda client: client.delete(SECRETS, "worker-east", SYSTEM))
    finds(fleet, "Credentials", "worker east", "there is no Secret multimirror-system/worker-east")
    finds(fleet, "WorkerCluster", "worker east", "KubeconfigMissing")
    fleet.joined("east")
    assert fleet.says("doctor").code == 0


def test_fault_8_a_token_that_was_taken_away(fleet: Operator) -> None:
    _stored(fleet, lambda config: config["users"][0].update({"user": {"token": "nonsense"}}))
    finds(fleet, "Credentials", "worker east", "its API server does not accept them")


@embedded_only
def test_fault_9_a_token_that_has_expired(fleet: Operator) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time()) - 3600}).encode()).decode().rstrip("=")
    _stored(fleet, lambda config: config["users"][0].update({"user": {"token": f"e30.{claims}.x"}}))
    finds(fleet, "Credentials", "worker east", "its credentials expired on")


def test_a_token_without_an_end_is_a_warning_and_one_that_is_renewed_is_none(fleet: Operator) -> None:
    def credentials() -> list[tuple[str, str]]:
        return [(each["level"], each["message"]) for each in findings(fleet) if each["check"] == "Credentials"]

    fleet.joined("east", "worker-1", "--new-token", "--token-duration", "2h")
    ((level, message),) = credentials()
    assert level == "ok"
    assert message.endswith("and is renewed before")


@embedded_only
def test_fault_10_a_worker_that_does_not_answer(fleet: Operator) -> None:
    dead = {"server": "https://127.0.0.1:1"}
    _stored(fleet, lambda config: config["clusters"][0]["cluster"].update(dead), joined_by="https://127.0.0.1:2")
    finds(fleet, "Reachable", "worker east", "https://127.0.0.1:1, as the dispatcher does: Connection refused")
    finds(fleet, "Reachable", "worker east", "https://127.0.0.1:2, by which it was joined: Connection refused")
    finds(fleet, "WorkerCluster", "worker east", "https://127.0.0.1:1")


def test_a_worker_that_only_the_dispatcher_does_not_reach_is_looked_into_all_the_same(fleet: Operator) -> None:
    dead = {"server": "https://127.0.0.1:1"}
    _stored(fleet, lambda config: config["clusters"][0]["cluster"].update(dead))
    finds(
        fleet, "WorkerCluster", "worker east", "that address was given with `join --server`, the worker was joined by"
    )
    told = [each for each in findings(fleet) if each["subject"] == "worker east" and each["check"] == "Reachable"]
    assert [each["level"] for each in told] == ["ok"], "it answers at the address by which it was joined"


def test_fault_11_two_names_for_one_cluster(fleet: Operator) -> None:
    fleet.says("join", "twin", "--kubeconfig", fleet.worker(), "--all-namespaces", "--timeout", "0s")
    finds(fleet, "SameCluster", "worker twin", "east, twin are the same cluster")


def test_fault_12_jobs_are_to_go_to_a_namespace_that_is_not_there(fleet: Operator) -> None:
    spec = {"namespaces": [{"name": "default", "workerNamespace": "nowhere"}]}
    _do(fleet, lambda client: client.patch(WORKER_CLUSTERS, "east", {"spec": spec}))
    finds(fleet, "Namespaces", "worker east", "Jobs are to go to namespace nowhere, which it does not have")


@real_only
def test_fault_13_the_account_of_a_worker_lost_its_rights(fleet: Operator) -> None:
    binding = "multimirror-worker-jobs"
    _do(fleet, lambda client: client.delete(resources.CLUSTER_ROLE_BINDINGS, binding), "worker-1")
    finds(fleet, "Rights", "worker east", "the account may not list jobs.batch in all namespaces")


@embedded_only
def test_fault_14_a_clock_that_is_wrong(stopped: Operator) -> None:
    fleet, authority = stopped, trustme.CA()
    trusted = base64.b64encode(authority.cert_pem.bytes()).decode()
    with (
        proxied(fleet.management, date="Mon, 16 Nov 2026 10:00:00 GMT") as here,
        proxied(fleet.worker(), date="Mon, 16 Nov 2026 10:10:00 GMT", authority=authority) as there,
    ):
        cluster = {"server": there, "certificate-authority-data": trusted}
        _stored(fleet, lambda config: config["clusters"][0].update({"cluster": cluster}))
        path = fleet.files["management"].parent / "proxied.yaml"
        path.write_text(yaml.safe_dump(through(fleet.management, here)))
        found = says("doctor", "-o", "json", "--kubeconfig", str(path)).json
    clocks = {
        each["subject"]: each["message"] for each in found if (each["check"], each["level"]) == ("Clock", "fault")
    }
    assert "s ahead of that of the management cluster" in clocks["worker east"], found


def test_fault_15_nobody_starts_the_copies(stopped: Operator) -> None:
    origin, key = _do(stopped, identity_of), _do(stopped, lambda client: find_copy_key(client, SYSTEM))
    copy = a_job("lying", queue="batch")
    place = {"cluster": _do(stopped, identity_of, "worker-1"), "namespace": TEAM, "name": "lying"}
    signature = Signer(key, origin).sign(JOBS, **place, uid="u", attempt="1")
    copy["metadata"]["labels"] = {
        ORIGIN_LABEL: origin,
        ORIGIN_UID_LABEL: "u",
        ATTEMPT_LABEL: "1",
        SIGNATURE_LABEL: signature,
    }
    copy["spec"] |= {"managedBy": "example.com/nobody", "suspend": False}  # left alone by every Job controller
    ours = {"Impersonate-User": f"system:serviceaccount:{SYSTEM}:multimirror"}  # nobody else may make copies
    _do(stopped, lambda client: client.request("POST", JOBS.path(TEAM), body=copy, headers=ours), "worker-1")
    try:
        finds(stopped, "JobController", "worker east", "its Job controller does nothing", "--stuck-after", "1s")
    finally:
        _do(stopped, lambda client: client.delete(JOBS, "lying", TEAM), "worker-1")


# --- queues, namespaces, Jobs -----------------------------------------------------------------------------------------


def test_fault_16_a_queue_without_workers(fleet: Operator) -> None:
    _do(fleet, _queue("far", workers={"names": ["north"]}))
    finds(fleet, "Queues", "queue far", "it has no worker clusters: there is no WorkerCluster north")


@embedded_only
def test_fault_17_a_queue_whose_only_worker_is_cordoned(fleet: Operator) -> None:
    fleet.says("cordon", "east")
    finds(fleet, "Queues", "queue batch", "none of its workers is ready (east)")


@embedded_only
def test_fault_18_a_default_queue_that_does_not_exist(fleet: Operator) -> None:
    labels = {DEFAULT_QUEUE_LABEL: "typo"}
    _do(fleet, lambda client: client.create(NAMESPACES, {"metadata": {"name": "doctored", "labels": labels}}))
    try:
        finds(fleet, "Namespaces", "namespace doctored", "its default queue typo does not exist")
    finally:
        _do(fleet, lambda client: client.delete(NAMESPACES, "doctored"))


@embedded_only
def test_fault_19_a_job_that_can_never_start(fleet: Operator) -> None:
    job = a_job("huge", queue="batch")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "999999"}}
    _do(fleet, lambda client: client.create(JOBS, job, TEAM))
    finds(fleet, "Jobs", "Jobs", "1 can never start: default/huge")


@embedded_only
def test_a_job_that_waits_for_long_is_a_warning(fleet: Operator) -> None:
    _do(fleet, _queue("full", quota={"jobs": 0}))
    _do(fleet, lambda client: client.create(JOBS, a_job("patient", queue="full"), TEAM))
    late = "wait for more than 1 s: default/patient"
    awaited(lambda: findings(fleet, "--stuck-after", "1s"), lambda found: any(late in f["message"] for f in found))
