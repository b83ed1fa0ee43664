"""What our objects say, read: defaults where nothing is said, and a word about the field where it makes no sense."""

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import (
    CLUSTERS_ANNOTATION,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    CapacityMode,
    Fence,
    LostAction,
    MirrorQueueSpec,
    OnWorkerLost,
    Placement,
    QueueingStrategy,
    QueueWorkers,
    Quota,
    SecretKey,
    SpecError,
    WorkerClusterSpec,
    allowed_clusters,
    priority_of,
    queue_of,
)

SECRET = {"secret": {"name": "east"}}


def a_worker(**spec: Any) -> dict[str, Any]:
    return {"kind": "WorkerCluster", "metadata": {"name": "east"}, "spec": {"kubeconfig": SECRET, **spec}}


def a_queue(**spec: Any) -> dict[str, Any]:
    return {"kind": "MirrorQueue", "metadata": {"name": "q"}, "spec": spec}


def test_a_worker_cluster_that_says_only_where_its_kubeconfig_is() -> None:
    spec = WorkerClusterSpec.read(a_worker())
    assert spec == WorkerClusterSpec(secret=SecretKey("east", "kubeconfig"))
    assert (spec.weight, spec.cordoned, spec.capacity, spec.max_jobs) == (1, False, None, None)
    assert spec.namespace_for("anything") == "anything"
    assert [spec.namespace_for(each) for each in ("kube-system", "kube-x", "multimirror-system")] == [None] * 3


def test_a_worker_cluster_that_says_everything() -> None:
    spec = WorkerClusterSpec.read(
        a_worker(
            kubeconfig={"path": "clusters/east"},
            labels={"region": "east"},
            weight=3,
            cordoned=True,
            capacity={"mode": "Declared", "resources": {"cpu": 64, "memory": "1.5Ti"}},
            maxJobs=10,
            namespaces=[{"name": "team-a"}, {"name": "team-b", "workerNamespace": "b"}],
        )
    )
    assert spec == WorkerClusterSpec(
        path="clusters/east",
        labels={"region": "east"},
        weight=3,
        cordoned=True,
        capacity={"cpu": Decimal(64), "memory": Decimal(3 * 2**39)},
        capacity_mode=CapacityMode.DECLARED,
        max_jobs=10,
        namespaces={"team-a": "team-a", "team-b": "b"},
    )
    assert [spec.namespace_for(name) for name in ("team-a", "team-b", "team-c")] == ["team-a", "b", None]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"kubeconfig": {}}, "spec.kubeconfig", id="no kubeconfig"),
        pytest.param({"kubeconfig": {**SECRET, "path": "x"}}, "spec.kubeconfig", id="two kubeconfigs"),
        pytest.param({"kubeconfig": "east"}, "spec.kubeconfig", id="a text for an object"),
        pytest.param({"kubeconfig": {"secret": {}}}, "spec.kubeconfig.secret.name", id="a Secret without a name"),
        pytest.param({"kubeconfig": {"path": "/etc/shadow"}}, "spec.kubeconfig.path", id="an absolute path"),
        pytest.param({"kubeconfig": {"path": "a/../../b"}}, "spec.kubeconfig.path", id="a path that leaves"),
        pytest.param({"weight": 0}, "spec.weight", id="no weight"),
        pytest.param({"weight": True}, "spec.weight", id="a truth for a number"),
        pytest.param({"cordoned": "yes"}, "spec.cordoned", id="a text for a truth"),
        pytest.param({"maxJobs": -1}, "spec.maxJobs", id="fewer Jobs than none"),
        pytest.param({"labels": {"a": 1}}, "spec.labels[a]", id="a number for a label"),
        pytest.param({"capacity": {"mode": "Declared"}}, "spec.capacity", id="declared without resources"),
        pytest.param({"capacity": {"resources": {"cpu": 1}}}, "spec.capacity", id="resources, but not declared"),
        pytest.param({"capacity": {"mode": "Guess"}}, "spec.capacity.mode", id="an unknown mode"),
        pytest.param(
            {"capacity": {"mode": "Declared", "resources": {"cpu": "lots"}}},
            "spec.capacity.resources[cpu]",
            id="not a quantity",
        ),
        pytest.param(
            {"capacity": {"mode": "Declared", "resources": {"cpu": "-1"}}},
            "spec.capacity.resources[cpu]",
            id="a negative quantity",
        ),
        pytest.param({"namespaces": ["a"]}, "spec.namespaces[0]", id="a text for a namespace's entry"),
        pytest.param({"namespaces": [{"name": "a"}, {"name": "a"}]}, "spec.namespaces", id="a namespace twice"),
        pytest.param(
            {"namespaces": [{"name": "a"}, {"name": "b", "workerNamespace": "a"}]},
            "spec.namespaces",
            id="two tenants in one namespace",
        ),
        pytest.param({"namespaces": [{"name": "kube-system"}]}, "spec.namespaces", id="a namespace of the cluster"),
        pytest.param(
            {"namespaces": [{"name": "a", "workerNamespace": "kube-node-lease"}]}, "spec.namespaces", id="mapped to one"
        ),
        pytest.param(
            {"namespaces": [{"name": "a", "workerNamespace": "multimirror-system"}]}, "spec.namespaces", id="our own"
        ),
    ],
)
def test_a_worker_cluster_that_makes_no_sense_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        WorkerClusterSpec.read(a_worker(**spec))
    assert refused.value.field == field
    assert str(refused.value) == f"{field}: {refused.value.message}"


def test_a_queue_that_says_nothing_is_for_everybody_and_goes_everywhere() -> None:
    spec = MirrorQueueSpec.read({"kind": "MirrorQueue", "metadata": {"name": "q"}})
    assert spec == MirrorQueueSpec()
    assert spec.admits({})
    assert spec.admits(None)
    assert spec.workers.include("any", {})
    assert (spec.retention, spec.on_worker_lost) == (600, OnWorkerLost(300, LostAction.REDISPATCH))


def test_a_queue_that_says_everything() -> None:
    spec = MirrorQueueSpec.read(
        a_queue(
            namespaceSelector={"matchLabels": {"team": "a"}},
            workers={"names": ["west", "east"], "selector": {"matchLabels": {"region": "north"}}},
            placement="Ordered",
            queueingStrategy="StrictFIFO",
            quota={"jobs": 5, "resources": {"cpu": "500m"}},
            onWorkerLost={"after": "1h30m", "action": "Wait"},
            retention="0s",
            fence={"timeout": "5m"},
        )
    )
    assert spec == MirrorQueueSpec(
        namespace_selector={"matchLabels": {"team": "a"}},
        workers=QueueWorkers(("west", "east"), {"matchLabels": {"region": "north"}}),
        placement=Placement.ORDERED,
        queueing_strategy=QueueingStrategy.STRICT_FIFO,
        quota=Quota(5, {"cpu": Decimal("0.5")}),
        on_worker_lost=OnWorkerLost(5400, LostAction.WAIT),
        retention=0,
        fence=Fence(300, 30),
    )
    assert spec.admits({"team": "a"})
    assert not spec.admits({"team": "b"})
    known = {"east": {}, "north-1": {"region": "north"}, "north-0": {"region": "north"}, "south": {}, "west": {}}
    chosen = [name for name, labels in known.items() if spec.workers.include(name, labels)]
    assert sorted(chosen, key=spec.workers.rank) == ["west", "east", "north-0", "north-1"]


def test_a_queue_with_named_workers_has_no_others() -> None:
    workers = MirrorQueueSpec.read(a_queue(workers={"names": ["east"]})).workers
    assert workers.include("east", {})
    assert not workers.include("west", {})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"workers": {}}, "spec.workers", id="no workers"),
        pytest.param({"workers": {"names": ["a", "a"]}}, "spec.workers.names", id="a worker twice"),
        pytest.param({"placement": "Random"}, "spec.placement", id="an unknown placement"),
        pytest.param({"queueingStrategy": "LIFO"}, "spec.queueingStrategy", id="an unknown strategy"),
        pytest.param({"quota": {"jobs": -1}}, "spec.quota.jobs", id="a negative quota"),
        pytest.param({"onWorkerLost": {"action": "Panic"}}, "spec.onWorkerLost.action", id="an unknown action"),
        pytest.param({"onWorkerLost": {"after": "5"}}, "spec.onWorkerLost.after", id="a duration without a unit"),
        pytest.param({"retention": "1d"}, "spec.retention", id="days"),
        pytest.param({"fence": {}}, "spec.fence.timeout", id="a fence without a lease"),
        pytest.param({"fence": {"timeout": "5s"}}, "spec.fence.timeout", id="too short a lease"),
        pytest.param(
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.namespaceSelector.matchExpressions[0].values",
            id="a selector without values",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": ["a"]}}, "spec.namespaceSelector.matchLabels", id="no labels at all"
        ),
    ],
)
def test_a_queue_that_makes_no_sense_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        MirrorQueueSpec.read(a_queue(**spec))
    assert refused.value.field == field


def test_a_spec_of_another_kind_is_not_read() -> None:
    with pytest.raises(SpecError, match="must be MirrorQueue"):
        MirrorQueueSpec.read(a_worker())


def a_job(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "j", "labels": labels, "annotations": annotations}}


def test_what_a_job_says_about_itself() -> None:
    job = a_job({QUEUE_LABEL: "q", PRIORITY_LABEL: "10"}, {CLUSTERS_ANNOTATION: "east, west"})
    assert (queue_of(job), priority_of(job), allowed_clusters(job)) == ("q", 10, frozenset({"east", "west"}))
    plain = a_job()
    assert (queue_of(plain), priority_of(plain), allowed_clusters(plain)) == (None, 0, None)


@pytest.mark.parametrize("value", ["high", "", "1.5", "1" * 10, "\u0661"])
def test_a_priority_is_a_whole_number(value: str) -> None:
    with pytest.raises(SpecError, match=r"metadata.labels\[multimirror.dev/priority\]: must be a whole number"):
        priority_of(a_job({PRIORITY_LABEL: value}))


@pytest.mark.parametrize("value", ["", "east,", "East", "east west"])
def test_clusters_are_named_and_separated_by_commas(value: str) -> None:
    with pytest.raises(SpecError, match=r"metadata.annotations\[multimirror.dev/clusters\]: must be names"):
        allowed_clusters(a_job(annotations={CLUSTERS_ANNOTATION: value}))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["99e999999", "5m", "In", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        *(
            "kubeconfig",
            "secret",
            "path",
            "name",
            "key",
            "labels",
            "weight",
            "cordoned",
            "capacity",
            "mode",
            "resources",
        ),
        *(
            "maxJobs",
            "namespaces",
            "workerNamespace",
            "namespaceSelector",
            "matchLabels",
            "matchExpressions",
            "operator",
        ),
        *("values", "workers", "names", "selector", "placement", "quota", "jobs", "onWorkerLost", "after", "action"),
        *("retention", "fence", "lease", "grace", "cpu", "queueingStrategy"),
    ]
)
NEARLY = st.recursive(
    JSON, lambda inner: st.dictionaries(WORDS, inner, max_size=5) | st.lists(inner, max_size=2), max_leaves=25
)


@settings(max_examples=300)
@given(NEARLY)
def test_whatever_is_in_an_object_it_is_read_or_refused_in_words(spec: Any) -> None:
    for read in (WorkerClusterSpec.read, MirrorQueueSpec.read):
        for given_spec in (spec, {**spec, "kubeconfig": SECRET} if isinstance(spec, dict) else spec):
            with contextlib.suppress(SpecError):
                read({"metadata": {"name": "x"}, "spec": given_spec})


def test_an_amount_that_no_number_holds_is_the_largest_there_is() -> None:
    declared = {"mode": "Declared", "resources": {"cpu": "99e999999"}}
    assert WorkerClusterSpec.read(a_worker(capacity=declared)).capacity == {"cpu": Decimal(2**63 - 1)}
    assert MirrorQueueSpec.read(a_queue(quota={"resources": {"cpu": "99e999999"}})).quota.resources == {
        "cpu": Decimal(2**63 - 1)
    }


def test_a_message_does_not_repeat_a_long_value() -> None:
    for value in ("x" * 10_000, 10**5000, -(10**5000), ["x"] * 10_000):
        with pytest.raises(SpecError) as refused:
            WorkerClusterSpec.read(a_worker(maxJobs=value, cordoned=value))
        assert len(str(refused.value)) < 300
