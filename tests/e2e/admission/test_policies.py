"""The admission policies in deploy/, applied to a real API server: the webhook's behaviour without a webhook.

What differs is tested too: a policy cannot look a queue up, so a Job may name one that does not exist.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from clusters.background import BackgroundFleet
from clusters.local import LocalOptions
from multimirror.admission import placement
from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTERS_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    PREEMPTIBLE_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
)
from multimirror.api.limits import size_of
from multimirror.cli.apply import apply_all, remove_all
from multimirror.kube import ApiError, Client, Connection, Resource
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import JOBS
from tests.e2e.admission.conftest import Object, a_job, a_job_of, a_namespace, a_queue, define, refusal
from tests.waiting import DEADLINE

pytestmark = [
    pytest.mark.cluster_kind("local"),
    pytest.mark.xdist_group("admission-policies"),
    pytest.mark.asyncio(loop_scope="module"),
]

POLICIES = Path(__file__).parents[3] / "deploy" / "admission" / "policies.yaml"
OURS = {"managedBy": MANAGED_BY, "suspend": True}


@pytest.fixture(scope="module")
def fleet() -> Iterator[BackgroundFleet]:
    """A control plane of their own: where policies act, the webhook has nothing left to do."""
    beta = {"admissionregistration.k8s.io/v1beta1": True}
    with BackgroundFleet("local", LocalOptions(workers=0, nodes=False, runtime_config=beta)) as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(fleet: BackgroundFleet) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(fleet.management.kubeconfig)) as client:
        await define(client)
        for policy in yaml.safe_load_all(POLICIES.read_text()):
            await client.create(resource_of(policy), policy)
        await until_all_act(client)
        yield client


def resource_of(policy: Object) -> Resource:
    group, version = policy["apiVersion"].split("/")
    kind = policy["kind"]
    plural = f"{kind.lower()[:-1]}ies" if kind.endswith("Policy") else f"{kind.lower()}s"
    return Resource(group, version, plural, kind, namespaced=False)


async def until_all_act(client: Client) -> None:
    """The API server compiles policies, and learns of new kinds of parameters, some time after they were written."""
    namespace = await a_namespace(client)
    foreign = await a_queue(client, namespaceSelector={"matchLabels": {"nobody": "has"}})
    defaulted = await a_namespace(client, **{DEFAULT_QUEUE_LABEL: await a_queue(client)})
    async with asyncio.timeout(DEADLINE):
        while not (
            await acts(client, a_job("a", {QUEUE_LABEL: "x"}), namespace)
            and await acts(client, a_job("a"), defaulted)
            and await acts(client, a_job("a", {QUEUE_LABEL: ""}), namespace) is None
            and await acts(client, a_job("a", {QUEUE_LABEL: foreign}), namespace) is None
        ):
            await asyncio.sleep(0.1)


async def acts(client: Client, job: Object, namespace: str) -> bool | None:
    """Whether a Job becomes ours; None if it is refused."""
    try:
        made = await client.create(JOBS, job, namespace, dry_run=True)
    except ApiError:
        return None
    return "managedBy" in made["spec"]


async def test_the_policies_for_older_clusters_are_taken_by_the_beta_api(client: Client) -> None:
    older = POLICIES.with_name("policies-v1beta1.yaml")
    mutating = [p for p in yaml.safe_load_all(older.read_text()) if p["kind"].startswith("Mutating")]
    assert {policy["apiVersion"] for policy in mutating} == {"admissionregistration.k8s.io/v1beta1"}
    for policy in mutating:
        policy["metadata"]["name"] += "-beta"
        made = await client.create(resource_of(policy), policy, dry_run=True)
        assert made["spec"].keys() >= policy["spec"].keys()


async def test_a_job_that_names_a_queue_becomes_ours(client: Client) -> None:
    namespace, queue = await a_namespace(client), await a_queue(client)
    job = a_job("train", {QUEUE_LABEL: queue, PRIORITY_LABEL: "5"})
    job["metadata"]["annotations"] = {
        CLUSTER_ANNOTATION: "elsewhere",
        ATTEMPT_ANNOTATION: "2",
        CLUSTERS_ANNOTATION: "east, west-2.example.com",
    }
    made = await client.create(JOBS, job, namespace)
    assert made["spec"].items() >= OURS.items()
    assert made["metadata"]["annotations"] == {CLUSTERS_ANNOTATION: "east, west-2.example.com"}
    dry = await client.create(JOBS, a_job("dry", {QUEUE_LABEL: queue}), namespace, dry_run=True)
    assert dry["spec"].items() >= OURS.items()


async def test_a_job_that_names_us_and_is_suspended_already_stays_as_it_is(client: Client) -> None:
    namespace, queue = await a_namespace(client), await a_queue(client)
    made = await client.create(JOBS, a_job("j", {QUEUE_LABEL: queue}, **OURS), namespace)
    assert made["spec"].items() >= OURS.items()


async def test_a_job_that_its_user_creates_suspended_is_held(client: Client) -> None:
    namespace, queue = await a_namespace(client), await a_queue(client)
    made = await client.create(JOBS, a_job("held", {QUEUE_LABEL: queue}, suspend=True), namespace)
    assert made["spec"].items() >= OURS.items()
    assert made["metadata"]["annotations"] == {HOLD_ANNOTATION: "true"}
    for name, spec in (("not", {}), ("ours", OURS)):
        made = await client.create(JOBS, a_job(name, {QUEUE_LABEL: queue}, **spec), namespace)
        assert HOLD_ANNOTATION not in (made["metadata"].get("annotations") or {})


async def test_a_job_in_a_namespace_with_a_default_queue_becomes_ours_and_says_so(client: Client) -> None:
    queue = await a_queue(client)
    namespace = await a_namespace(client, **{DEFAULT_QUEUE_LABEL: queue})
    for name, labels in (("bare", None), ("labelled", {"app": "x"})):
        made = await client.create(JOBS, a_job(name, labels), namespace)
        assert made["metadata"]["labels"].items() >= {QUEUE_LABEL: queue, **(labels or {})}.items()
        assert made["spec"].items() >= OURS.items()
    bare = a_job("no-labels-at-all")
    del bare["metadata"]["labels"]
    assert (await client.create(JOBS, bare, namespace))["metadata"]["labels"][QUEUE_LABEL] == queue


async def test_every_other_job_is_left_alone(client: Client) -> None:
    plain = await client.create(JOBS, a_job("plain", {"app": "x"}), await a_namespace(client))
    assert plain["spec"].get("managedBy") is None
    assert plain["spec"]["suspend"] is False
    namespace = await a_namespace(client, **{DEFAULT_QUEUE_LABEL: await a_queue(client)})
    part = a_job("part")
    owner = {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    part["metadata"]["ownerReferences"] = [owner]
    left = [
        await client.create(JOBS, a_job("copy", {ORIGIN_LABEL: "x"}), namespace),
        await client.create(JOBS, a_job("other", managedBy="example.com/other"), namespace),
        await client.create(JOBS, a_job("out", managedBy="kubernetes.io/job-controller"), namespace),
        await client.create(JOBS, part, namespace),
    ]
    managers = [job["spec"].get("managedBy") for job in left]
    assert managers == [None, "example.com/other", "kubernetes.io/job-controller", None]
    assert not any(QUEUE_LABEL in job["metadata"].get("labels", {}) for job in left)
    empty = await a_namespace(client, **{DEFAULT_QUEUE_LABEL: ""})
    assert (await client.create(JOBS, a_job("j"), empty))["spec"].get("managedBy") is None


@pytest.mark.parametrize(
    ("labels", "annotations", "manager", "message"),
    [
        pytest.param({QUEUE_LABEL: ""}, {}, None, "the label multimirror.dev/queue is empty", id="an empty label"),
        pytest.param({}, {}, "x/y", "Jobs in a queue are managed by multimirror.dev/dispatcher", id="two managers"),
        pytest.param({ORIGIN_LABEL: "x"}, {}, None, "kept for copies", id="dressed up as a copy"),
        pytest.param({PRIORITY_LABEL: "high"}, {}, None, "must be a whole number", id="a priority that is no number"),
        pytest.param({PRIORITY_LABEL: "1234567890"}, {}, None, "must be a whole number", id="too large a priority"),
        pytest.param({PREEMPTIBLE_LABEL: "no"}, {}, None, 'must be "true" or "false"', id="neither true nor false"),
        pytest.param({}, {PREEMPTIBLE_LABEL: "no"}, None, 'must be "true" or "false"', id="nor as an annotation"),
        pytest.param({}, {CLUSTERS_ANNOTATION: "a,,b"}, None, "separated by commas", id="a hole in the clusters"),
        pytest.param({}, {CLUSTERS_ANNOTATION: "A"}, None, "separated by commas", id="a name that is none"),
    ],
)
async def test_refusals_are_told_in_words(
    client: Client, labels: dict[str, str], annotations: dict[str, str], manager: str | None, message: str
) -> None:
    queue = await a_queue(client)
    job = a_job("bad", {QUEUE_LABEL: queue, **labels}, **({"managedBy": manager} if manager else {}))
    job["metadata"]["annotations"] = annotations
    error = await refusal(client, job, await a_namespace(client))
    assert isinstance(error, Forbidden)
    assert message in error.message


@pytest.mark.parametrize(
    ("selector", "labels", "allowed"),
    [
        ({}, {}, True),
        ({"matchLabels": {"team": "a"}}, {"team": "a"}, True),
        ({"matchLabels": {"team": "a"}}, {"team": "b"}, False),
        ({"matchLabels": {"team": "a"}}, {}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}, {"team": "b"}, True),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}, {"team": "c"}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, {"team": "a"}, False),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, {"team": "x"}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, {"team": "x"}, False),
        (
            {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
            {"team": "a"},
            False,
        ),
    ],
)
async def test_a_queue_may_be_used_from_the_namespaces_that_it_selects(
    client: Client, selector: Object, labels: dict[str, str], allowed: bool
) -> None:
    namespace, queue = await a_namespace(client, **labels), await a_queue(client, namespaceSelector=selector)
    job = a_job("j", {QUEUE_LABEL: queue})
    if allowed:
        assert (await client.create(JOBS, job, namespace))["spec"].items() >= OURS.items()
        return
    async with asyncio.timeout(DEADLINE):  # the policy hears of a new queue a moment after it was made
        while await acts(client, job, namespace) is not None:
            await asyncio.sleep(0.05)
    error = await refusal(client, job, namespace)
    assert f"MirrorQueue '{queue}' may not be used from namespace '{namespace}'" in error.message


@pytest.mark.parametrize(
    ("priority", "most", "told"),
    [
        ("7", 7, None),
        ("8", 7, "allows up to 7 (maxPriority)"),
        ("10", 9, "allows up to 9 (maxPriority)"),
        ("1", 0, "allows up to 0 (maxPriority)"),
        (None, 0, None),
        ("999999999", None, None),
    ],
)
async def test_a_queue_says_how_urgent_its_jobs_may_be(
    client: Client, priority: str | None, most: int | None, told: str | None
) -> None:
    namespace, queue = (
        await a_namespace(client),
        await a_queue(client, **({} if most is None else {"maxPriority": most})),
    )
    job = a_job("j", {QUEUE_LABEL: queue, **({} if priority is None else {PRIORITY_LABEL: priority})})
    if told is None:
        await client.create(JOBS, job, namespace)
        return
    async with asyncio.timeout(DEADLINE):  # the policy hears of a new queue a moment after it was made
        while await acts(client, job, namespace) is not None:
            await asyncio.sleep(0.05)
    error = await refusal(client, job, namespace)
    assert f"the label {PRIORITY_LABEL} is {priority}, and MirrorQueue '{queue}' {told}" in error.message


def _fat(**fat: Any) -> Object:
    """A Job with a little too much of something."""
    job = a_job("fat")
    job["metadata"]["annotations"] = fat.pop("annotations", {})
    job["spec"]["template"]["spec"] |= {key: fat.pop(key) for key in ("initContainers", "tolerations") if key in fat}
    job["spec"]["template"]["spec"]["containers"][0] |= fat
    return job


@pytest.mark.parametrize(
    "fat",
    [
        pytest.param({"annotations": {"a": "x" * 200_000}, "args": ["x" * 70_000]}, id="annotations and arguments"),
        pytest.param({"env": [{"name": "X", "value": "x" * 300_000}]}, id="one variable"),
        pytest.param({"env": [{"name": f"X{number}", "value": "x"} for number in range(12_000)]}, id="many variables"),
        pytest.param({"args": ["x" * 1000] * 270}, id="arguments"),
        pytest.param({"command": ["x"] * 100_000}, id="a long command"),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "busybox", "args": ["x" * 300_000]}]}, id="before it begins"
        ),
        pytest.param({"tolerations": [{"key": f"k{number}"} for number in range(20_000)]}, id="tolerations"),
    ],
)
async def test_a_job_that_is_too_large_is_refused_in_words(client: Client, fat: Object) -> None:
    job, queue = _fat(**fat), await a_queue(client)
    namespace = await a_namespace(client)
    await client.create(JOBS, job, namespace, dry_run=True)  # of nobody's concern without a queue
    job["metadata"]["labels"] = {QUEUE_LABEL: queue}
    error = await refusal(client, job, namespace)
    assert isinstance(error, Forbidden)
    assert "KiB of metadata and spec, more than the 256 KiB that may be placed" in error.message


async def test_a_job_that_is_not_too_large_is_taken(client: Client) -> None:
    variables = [{"name": f"X{number}", "value": "x" * 100} for number in range(1500)]
    job = _fat(annotations={"a": "x" * 20_000}, env=variables, args=["x" * 20_000])
    assert 200 * 1024 < size_of(job) < 256 * 1024
    job["metadata"]["labels"] = {QUEUE_LABEL: await a_queue(client)}
    await client.create(JOBS, job, await a_namespace(client))


async def test_unlike_the_webhook_a_policy_cannot_see_that_a_queue_does_not_exist(client: Client) -> None:
    made = await client.create(JOBS, a_job("j", {QUEUE_LABEL: "no-such-queue"}), await a_namespace(client))
    assert made["spec"].items() >= OURS.items(), "it waits, suspended; the dispatcher says why"


async def test_jobs_that_a_cron_job_makes_become_ours(client: Client) -> None:
    namespace, queue = await a_namespace(client), await a_queue(client)
    template = {"metadata": {"labels": {QUEUE_LABEL: queue}}, "spec": a_job("x")["spec"]}
    cron = {"metadata": {"name": "nightly"}, "spec": {"schedule": "* * * * *", "jobTemplate": template}}
    job = await a_job_of(client, cron, namespace)
    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert job["spec"].items() >= OURS.items()


async def test_policies_for_another_manager_guard_its_jobs(client: Client) -> None:
    """As `multimirror install --managed-by` renders them."""
    documents = placement.guards("example.com/ours")
    namespace = await a_namespace(client)
    theirs = a_job("theirs", None, managedBy=MANAGED_BY, suspend=True)
    ours = a_job("ours", None, managedBy="example.com/ours", suspend=True)
    try:
        await apply_all(client, documents)
        async with asyncio.timeout(DEADLINE):
            while await acts(client, ours, namespace) is not None:
                await asyncio.sleep(0.05)
        assert "spec.managedBy is example.com/ours" in (await refusal(client, ours, namespace)).message
        await client.create(JOBS, theirs, namespace)
    finally:
        await remove_all(client, documents)
