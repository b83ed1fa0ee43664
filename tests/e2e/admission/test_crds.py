"""Our kinds on an API server: what is accepted and filled in, and what is refused, in words that help.

CEL rules are evaluated by real API servers only. What they refuse, the embedded one stores; the readers of the specs
refuse it then (tests/unit/api).
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from clusters.local.binaries import BinariesMissingError, find_kubectl
from multimirror.api import (
    COHORTS,
    MIRROR_QUEUES,
    WORKER_CLUSTERS,
    CohortSpec,
    MirrorQueueSpec,
    SpecError,
    WorkerClusterSpec,
)
from multimirror.kube import Resource
from multimirror.kube.errors import Invalid
from multimirror.kube.resources import CRON_JOBS, JOBS
from tests.documents import blocks, documents
from tests.e2e.admission.conftest import Object, Server, our_object, unique

SECRET = {"secret": {"name": "east"}}
RESOURCES = {"WorkerCluster": WORKER_CLUSTERS, "MirrorQueue": MIRROR_QUEUES, "Cohort": COHORTS}
READERS: dict[str, Callable[[Object], object]] = {
    "WorkerCluster": WorkerClusterSpec.read,
    "MirrorQueue": MirrorQueueSpec.read,
    "Cohort": CohortSpec.read,
}


async def test_a_worker_cluster_gets_its_defaults(server: Server) -> None:
    made = await server.client.create(WORKER_CLUSTERS, our_object(WORKER_CLUSTERS, unique("w"), kubeconfig=SECRET))
    assert made["spec"] == {
        "kubeconfig": {"secret": {"name": "east", "key": "kubeconfig"}},
        "weight": 1,
        "cordoned": False,
        "capacity": {"mode": "Auto"},
    }
    assert WorkerClusterSpec.read(made) == WorkerClusterSpec.read({"spec": {"kubeconfig": SECRET}})


async def test_a_queue_without_a_spec_gets_its_defaults(server: Server) -> None:
    queue = our_object(MIRROR_QUEUES, unique("q"))
    del queue["spec"]
    made = await server.client.create(MIRROR_QUEUES, queue)
    assert made["spec"] == {
        "namespaceSelector": {},
        "workers": {"selector": {}},
        "placement": "Spread",
        "queueingStrategy": "BestEffortFIFO",
        "onWorkerLost": {"after": "5m", "action": "Redispatch"},
        "retention": "10m",
        "weight": 1,
        "minRuntime": "0s",
        "hold": "None",
    }
    assert MirrorQueueSpec.read(made) == MirrorQueueSpec(), "the defaults of the schema are those of the reader"


async def test_a_cohort_without_a_spec_gets_its_defaults(server: Server) -> None:
    cohort = our_object(COHORTS, unique("c"))
    del cohort["spec"]
    made = await server.client.create(COHORTS, cohort)
    assert made["spec"] == {"weight": 1}
    assert CohortSpec.read(made) == CohortSpec()


FULL: list[tuple[str, Object]] = [
    (
        "WorkerCluster",
        {
            "kubeconfig": {"path": "clusters/east.yaml"},
            "labels": {"region": "east", "example.com/gpu": "a100"},
            "weight": 10,
            "cordoned": True,
            "capacity": {"mode": "Declared", "resources": {"cpu": 64, "memory": "256Gi", "nvidia.com/gpu": "8"}},
            "maxJobs": 100,
            "namespaces": [{"name": "team-a"}, {"name": "team-b", "workerNamespace": "b"}],
        },
    ),
    (
        "MirrorQueue",
        {
            "namespaceSelector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "x", "operator": "In", "values": ["1"]}],
            },
            "workers": {"names": ["east", "west"], "selector": {"matchLabels": {"region": "north"}}},
            "placement": "Ordered",
            "queueingStrategy": "StrictFIFO",
            "quota": {"jobs": 5, "resources": {"cpu": "10", "memory": "1.5Gi", "nvidia.com/gpu": 4}},
            "onWorkerLost": {"after": "90s", "action": "Fail"},
            "retention": "0s",
            "fence": {"timeout": "5m", "grace": "1m"},
            "cohort": "research",
            "weight": "0.5",
            "preempts": ["Reclaim", "FairShare", "Priority"],
            "minRuntime": "10m",
            "start": {"within": "10m", "attempts": 5},
            "hold": "Drain",
        },
    ),
    (
        "MirrorQueue",
        {
            "cohort": "research",
            "weight": 0,
            "quota": {"resources": {"cpu": 1}, "borrow": {"cpu": 0, "nvidia.com/gpu": "8"}, "lend": {"cpu": "500m"}},
            "preempts": [],
        },
    ),
    ("MirrorQueue", {"quota": {"borrow": {}, "lend": {}}, "preempts": ["Priority"]}),
    (
        "Cohort",
        {
            "parent": "company",
            "weight": "500m",
            "quota": {"resources": {"cpu": 50}, "borrow": {"cpu": "10"}, "lend": {"nvidia.com/gpu": 4}},
        },
    ),
]


@pytest.mark.parametrize(
    ("kind", "spec"), FULL, ids=["WorkerCluster", "MirrorQueue", "a queue that shares", "one that does not", "Cohort"]
)
async def test_an_object_that_says_everything_is_stored_as_it_is(server: Server, kind: str, spec: Object) -> None:
    resource = RESOURCES[kind]
    made = await server.client.create(resource, our_object(resource, unique("full"), **spec))
    for key, value in spec.items():
        assert made["spec"][key] == value
    READERS[kind](made)


EXAMPLES = [
    pytest.param(example, id=f"{block} {example['kind']}")
    for file in documents()
    for block in blocks(file)
    if block.language == "yaml"
    for example in yaml.safe_load_all(block.text)
    if isinstance(example, dict) and example.get("kind") in {*RESOURCES, "Job", "CronJob"}
]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_every_example_in_the_documents_is_accepted_as_it_is(server: Server, example: Object) -> None:
    resource = {**RESOURCES, "Job": JOBS, "CronJob": CRON_JOBS}[example["kind"]]
    where = resource.path("default" if resource.namespaced else None)
    await server.client.request("POST", where, {"dryRun": "All", "fieldValidation": "Strict"}, example)
    if example["kind"] in READERS:
        READERS[example["kind"]](example)


@pytest.mark.parametrize(
    ("kind", "spec", "field", "message"),
    [
        ("WorkerCluster", {}, "spec.kubeconfig", "Required value"),
        ("WorkerCluster", {"kubeconfig": {"secret": {}}}, "spec.kubeconfig.secret.name", "Required value"),
        (
            "WorkerCluster",
            {"kubeconfig": SECRET, "weight": 0},
            "spec.weight",
            "should be greater than or equal to 1",
        ),
        ("WorkerCluster", {"kubeconfig": SECRET, "maxJobs": 0}, "spec.maxJobs", "greater than or equal to 1"),
        (
            "WorkerCluster",
            {"kubeconfig": SECRET, "capacity": {"mode": "Guess"}},
            "spec.capacity.mode",
            'supported values: "Auto", "Free", "Declared"',
        ),
        (
            "WorkerCluster",
            {"kubeconfig": SECRET, "capacity": {"mode": "Declared", "resources": {"cpu": "-1"}}},
            "spec.capacity.resources.cpu",
            "should match",
        ),
        (
            "WorkerCluster",
            {"kubeconfig": SECRET, "namespaces": [{"name": "a"}, {"name": "a"}]},
            "spec.namespaces[1]",
            "Duplicate value",
        ),
        ("WorkerCluster", {"kubeconfig": SECRET, "labels": {"a": "b c"}}, "spec.labels.a", "should match"),
        (
            "MirrorQueue",
            {"placement": "Random"},
            "spec.placement",
            'supported values: "Spread", "Pack", "Ordered", "Weighted"',
        ),
        ("MirrorQueue", {"quota": {"jobs": -1}}, "spec.quota.jobs", "greater than or equal to 0"),
        ("MirrorQueue", {"quota": {"resources": {"cpu": "x"}}}, "spec.quota.resources.cpu", "should match"),
        ("MirrorQueue", {"retention": "5 minutes"}, "spec.retention", "should match"),
        ("MirrorQueue", {"fence": {}}, "spec.fence.timeout", "Required value"),
        ("MirrorQueue", {"onWorkerLost": {"action": "Panic"}}, "spec.onWorkerLost.action", '"Redispatch", "Wait"'),
        ("MirrorQueue", {"workers": {"names": ["a", "a"]}}, "spec.workers.names[1]", "Duplicate value"),
        ("MirrorQueue", {"cohort": "a.b"}, "spec.cohort", "should match"),
        ("MirrorQueue", {"cohort": "c" * 64}, "spec.cohort", "63"),
        ("MirrorQueue", {"weight": -1}, "spec.weight", "greater than or equal to 0"),
        ("MirrorQueue", {"weight": "heavy"}, "spec.weight", "should match"),
        ("MirrorQueue", {"preempts": ["Priority", "Priority"]}, "spec.preempts[1]", "Duplicate value"),
        ("MirrorQueue", {"preempts": ["Anybody"]}, "spec.preempts[0]", '"Reclaim", "FairShare", "Priority"'),
        ("MirrorQueue", {"minRuntime": "10"}, "spec.minRuntime", "should match"),
        ("MirrorQueue", {"start": {}}, "spec.start.within", "Required value"),
        ("MirrorQueue", {"start": {"within": "1m", "attempts": 0}}, "spec.start.attempts", "than or equal to 1"),
        ("MirrorQueue", {"start": {"within": "1m", "attempts": 11}}, "spec.start.attempts", "than or equal to 10"),
        ("MirrorQueue", {"hold": "Stop"}, "spec.hold", 'supported values: "None", "Hold", "Drain"'),
        ("Cohort", {"parent": "a.b"}, "spec.parent", "should match"),
        ("Cohort", {"weight": "-1"}, "spec.weight", "should match"),
        ("Cohort", {"quota": {"lend": {"cpu": "x"}}}, "spec.quota.lend.cpu", "should match"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
async def test_what_breaks_the_schema_is_refused_by_field(
    server: Server, kind: str, spec: Object, field: str, message: str
) -> None:
    resource = RESOURCES[kind]
    with pytest.raises(Invalid) as refused:
        await server.client.create(resource, our_object(resource, unique("bad"), **spec))
    found = [cause for cause in refused.value.causes if cause.field == field]
    assert found, refused.value
    assert any(message in cause.message for cause in found), found


BY_RULE: list[Any] = [
    pytest.param("WorkerCluster", {"kubeconfig": {}}, "exactly one of secret and path", id="no source"),
    pytest.param("WorkerCluster", {"kubeconfig": {**SECRET, "path": "x"}}, "exactly one", id="two sources"),
    pytest.param("WorkerCluster", {"kubeconfig": {"path": "/etc/x"}}, "must be relative", id="an absolute path"),
    pytest.param("WorkerCluster", {"kubeconfig": {"path": "a/../../x"}}, "without '..'", id="a path that leaves"),
    pytest.param(
        "WorkerCluster", {"kubeconfig": SECRET, "capacity": {"mode": "Declared"}}, "if, and only if", id="no resources"
    ),
    pytest.param(
        "WorkerCluster",
        {"kubeconfig": SECRET, "namespaces": [{"name": "a"}, {"name": "b", "workerNamespace": "a"}]},
        "their Jobs would mix",
        id="two tenants in one namespace",
    ),
    pytest.param(
        "WorkerCluster",
        {"kubeconfig": SECRET, "namespaces": [{"name": "a", "workerNamespace": "kube-system"}]},
        "no Job ever runs there",
        id="a namespace of the cluster itself",
    ),
    pytest.param("MirrorQueue", {"workers": {}}, "give names, a selector, or both", id="no workers"),
    pytest.param("MirrorQueue", {"fence": {"timeout": "5s"}}, "must be at least 10s", id="too short a lease"),
    pytest.param(
        "MirrorQueue",
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "In and NotIn need values",
        id="a selector without values",
    ),
    pytest.param(
        "MirrorQueue",
        {"namespaceSelector": {"matchLabels": {"a b": "c"}}},
        "keys must be label keys",
        id="a key that is none",
    ),
    pytest.param(
        "MirrorQueue", {"quota": {"borrow": {"cpu": 1}}}, "quota.borrow needs spec.cohort", id="borrows from nobody"
    ),
    pytest.param(
        "MirrorQueue",
        {"quota": {"resources": {"cpu": 1}, "lend": {"cpu": 1}}},
        "quota.lend needs spec.cohort",
        id="lends to nobody",
    ),
    pytest.param(
        "MirrorQueue",
        {"cohort": "c", "quota": {"resources": {"cpu": 1}, "lend": {"memory": 1}}},
        "lend may only name resources that quota.resources names",
        id="lends what it does not have",
    ),
    pytest.param("MirrorQueue", {"preempts": ["Reclaim"]}, "Reclaim and FairShare need spec.cohort", id="takes back"),
    pytest.param(
        "MirrorQueue",
        {"preempts": ["Priority", "FairShare"]},
        "Name a cohort, or leave",
        id="takes its share, and has no cohort",
    ),
    pytest.param("MirrorQueue", {"start": {"within": "9s"}}, "must be at least 10s", id="starts too soon"),
    pytest.param("Cohort", {"quota": {"borrow": {"cpu": 1}}}, "quota.borrow needs spec.parent", id="a root borrows"),
    pytest.param("Cohort", {"quota": {"lend": {"cpu": 1}}}, "quota.lend needs spec.parent", id="a root lends"),
    pytest.param("Cohort", {"halfLife": "0s"}, "must be at least 60s", id="a half-life of nothing"),
    pytest.param("Cohort", {"halfLife": "8761h"}, "must be at most 8760h", id="a half-life of more than a year"),
]


@pytest.mark.parametrize(("kind", "spec", "message"), BY_RULE)
async def test_what_breaks_a_rule_is_refused_in_words(server: Server, kind: str, spec: Object, message: str) -> None:
    resource = RESOURCES[kind]
    thing = our_object(resource, unique("bad"), **spec)
    if server.kind == "embedded":  # CEL is not evaluated: the object is stored, and whoever reads it refuses it
        stored = await server.client.create(resource, thing)
        with pytest.raises(SpecError):
            READERS[kind](stored)
        return
    with pytest.raises(Invalid, match=message):
        await server.client.create(resource, thing)


async def test_a_name_is_short_enough_for_a_label(server: Server) -> None:
    if server.kind == "embedded":
        pytest.skip("the embedded API server does not evaluate CEL rules")
    with pytest.raises(Invalid, match="must not be longer than 63 characters"):
        await server.client.create(MIRROR_QUEUES, our_object(MIRROR_QUEUES, "q" * 64))


async def test_a_cohort_is_a_name_that_queues_can_say_and_no_parent_of_its_own(server: Server) -> None:
    name = unique("c")
    own = our_object(COHORTS, name, parent=name)
    if server.kind == "embedded":
        with pytest.raises(SpecError, match=r"spec\.parent: must not be the cohort itself"):
            CohortSpec.read(await server.client.create(COHORTS, own))
        return
    with pytest.raises(Invalid, match=r"spec\.parent must not be the cohort itself"):
        await server.client.create(COHORTS, own)
    with pytest.raises(Invalid, match="for queues to name it"):
        await server.client.create(COHORTS, our_object(COHORTS, "a.b"))


async def test_what_a_queue_shares_is_shown_in_columns(server: Server) -> None:
    name = unique("shares")
    await server.client.create(MIRROR_QUEUES, our_object(MIRROR_QUEUES, name, cohort="research"))
    for share in (120, "infinite"):
        status = {
            "own": {"cpu": "16"},
            "used": {"cpu": "24"},
            "borrowed": {"cpu": "8"},
            "share": share,
            "fairShare": 500,
            "pastUse": {"value": "0.412345678", "using": "1", "at": "2026-11-01T00:00:00Z"},
            "waitSeconds": {"p50": 3, "p90": 60},
            "startsPerHour": 4,
        }
        written = await server.client.patch(MIRROR_QUEUES, name, {"status": status}, subresource="status")
        assert written["status"] == status
        cells = await columns_of(server, MIRROR_QUEUES, name)
        wide = ("Cohort", "Own", "Used", "Borrowed", "Lent", "Share")
        assert [cells[each] for each in wide] == [
            "research",
            '{"cpu":"16"}',
            '{"cpu":"24"}',
            '{"cpu":"8"}',
            None,
            str(share),
        ]
    with pytest.raises(Invalid, match="share"):
        await server.client.patch(MIRROR_QUEUES, name, {"status": {"share": "much"}}, subresource="status")


async def columns_of(server: Server, resource: Resource, name: str) -> Object:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    shown = json.loads((await server.client.request("GET", resource.path(name=name), headers=accept)).body)
    columns = [column["name"] for column in shown["columnDefinitions"]]
    return dict(zip(columns, shown["rows"][0]["cells"], strict=True))


async def test_status_is_written_on_its_own_and_shown_in_columns(server: Server) -> None:
    name = unique("shown")
    await server.client.create(WORKER_CLUSTERS, our_object(WORKER_CLUSTERS, name, kubeconfig=SECRET))
    condition = {
        "reason": "Ok",
        "message": "all is well",
        "lastTransitionTime": "2026-11-16T00:00:00Z",
        "observedGeneration": 1,
    }
    status = {
        "observedGeneration": 1,
        "conditions": [
            {"type": "Ready", "status": "True", **condition},
            {"type": "Connected", "status": "True", **condition},
        ],
        "version": "v1.36.4",
        "lastContact": "2026-11-16T00:00:00Z",
        "latencyMilliseconds": 12,
        "jobs": 3,
        "capacity": {"cpu": "64"},
        "used": {"cpu": 500, "memory": "1Gi"},
        "kinds": ["Job.batch"],
    }
    written = await server.client.patch(WORKER_CLUSTERS, name, {"status": status}, subresource="status")
    assert (written["status"], written["metadata"]["generation"]) == (status, 1)
    table = await server.client.request(
        "GET",
        WORKER_CLUSTERS.path(name=name),
        headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
    )
    shown = json.loads(table.body)
    columns = [column["name"] for column in shown["columnDefinitions"]]
    assert columns == [
        "Name",
        "Ready",
        "Connected",
        "Cordoned",
        "Jobs",
        "Version",
        "Age",
        "Reason",
        "Latency",
        "Weight",
    ]
    cells = dict(zip(columns, shown["rows"][0]["cells"], strict=True))
    del cells["Age"]
    assert cells == {
        "Name": name,
        "Ready": "True",
        "Connected": "True",
        "Cordoned": False,
        "Jobs": 3,
        "Version": "v1.36.4",
        "Reason": "all is well",
        "Latency": 12,
        "Weight": 1,
    }


async def test_kubectl_knows_the_short_names_the_category_and_every_field(server: Server) -> None:
    await server.client.create(MIRROR_QUEUES, our_object(MIRROR_QUEUES, name := unique("q")))
    assert name in await kubectl(server, "get", "mq", name)
    await server.client.create(COHORTS, our_object(COHORTS, name))
    assert name in await kubectl(server, "get", "mqc", name)
    assert f"mirrorqueue.multimirror.dev/{name}" in await kubectl(server, "get", "multimirror", "-o", "name")
    if server.kind == "local":
        assert "Redispatch: another cluster gets it" in " ".join(
            (await kubectl(server, "explain", "mq.spec.onWorkerLost.action")).split()
        )
        assert "without a cohort they are the limit" in " ".join(
            (await kubectl(server, "explain", "mq.spec.quota.resources")).lower().split()
        )
        assert await kubectl(server, "wait", "--for=create", f"mq/{name}", "--timeout=5s")


async def kubectl(server: Server, *arguments: str) -> str:
    try:
        path = find_kubectl()
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    process = await asyncio.create_subprocess_exec(
        path, "--kubeconfig", server.kubeconfig_file, *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, arguments
    return told.decode()
