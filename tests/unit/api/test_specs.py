"""What our objects say, read: defaults where nothing is said, and a word about the field where it makes no sense."""

import contextlib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multimirror.api import (
    CLUSTERS_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIBLE_LABEL,
    PREEMPTIONS_ANNOTATION,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    CohortSpec,
    Fence,
    Hold,
    LostAction,
    MirrorQueueSpec,
    OnWorkerLost,
    Placement,
    Preempts,
    QueueingStrategy,
    QueueWorkers,
    Quota,
    SecretKey,
    SpecError,
    Start,
    WorkerClusterSpec,
    allowed_clusters,
    check_preemptible,
    is_preemptible,
    priority_of,
    queue_of,
)
from multimirror.api.cohorts import cycle_above, upwards
from multimirror.api.placement import preempted_by_of, preempted_of, preemptions_of

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
            cohort="research",
            weight="0.5",
            preempts=["Priority", "FairShare"],
            minRuntime="10m",
            start={"within": "10m", "attempts": 5},
            hold="Drain",
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
        cohort="research",
        weight=Fraction(1, 2),
        preempts=frozenset({Preempts.PRIORITY, Preempts.FAIR_SHARE}),
        min_runtime=600,
        start=Start(600, 5),
        hold=Hold.DRAIN,
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


def test_a_queue_without_a_cohort_is_what_it_was_before_there_were_any() -> None:
    spec = MirrorQueueSpec.read(a_queue(quota={"resources": {"cpu": 1}}))
    assert (spec.cohort, spec.preempts, spec.hold, spec.start) == (None, frozenset(), Hold.NONE, None)
    assert (float(spec.weight), spec.min_runtime) == (1, 0)
    assert (spec.quota.borrow, spec.quota.lend) == ({}, {})


def test_a_queue_in_a_cohort_takes_its_own_back_unless_it_says_otherwise() -> None:
    assert MirrorQueueSpec.read(a_queue(cohort="c")).preempts == {Preempts.RECLAIM}
    assert MirrorQueueSpec.read(a_queue(cohort="c", preempts=[])).preempts == frozenset()
    assert MirrorQueueSpec.read(a_queue(preempts=["Priority"])).preempts == {Preempts.PRIORITY}


def test_what_a_queue_borrows_and_lends() -> None:
    quota = {"resources": {"cpu": 8}, "borrow": {"cpu": 0, "nvidia.com/gpu": "4"}, "lend": {"cpu": 16}, "jobs": 0}
    assert MirrorQueueSpec.read(a_queue(cohort="c", quota=quota)).quota == Quota(
        jobs=0,
        resources={"cpu": Decimal(8)},
        borrow={"cpu": Decimal(0), "nvidia.com/gpu": Decimal(4)},
        lend={"cpu": Decimal(16)},
    )
    MirrorQueueSpec.read(a_queue(quota={"borrow": {}, "lend": {}}))  # which says nothing


@pytest.mark.parametrize(
    ("weight", "read"), [(0, Fraction(0)), (2, Fraction(2)), ("0.5", Fraction(1, 2)), ("500m", Fraction(1, 2))]
)
def test_a_weight_is_a_number(weight: object, read: Fraction) -> None:
    assert MirrorQueueSpec.read(a_queue(weight=weight)).weight == read
    assert CohortSpec.read(a_cohort(weight=weight)).weight == read


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        pytest.param({"cohort": "a.b"}, "cohort", "such as research", id="a cohort that is no label"),
        pytest.param({"cohort": "C"}, "cohort", "lower case", id="a large letter"),
        pytest.param({"cohort": "c" * 64}, "cohort", "at most 63", id="too long a name"),
        pytest.param({"cohort": ""}, "cohort", "not empty", id="no name"),
        pytest.param({"cohort": 1}, "cohort", "must be a text", id="a number for a name"),
        pytest.param({"weight": -1}, "weight", "at least 0", id="a negative weight"),
        pytest.param({"weight": "heavy"}, "weight", 'such as 2 or "0.5"', id="a weight in words"),
        pytest.param({"weight": True}, "weight", "a number", id="a truth for a weight"),
        pytest.param({"quota": {"borrow": {"cpu": 1}}}, "quota.borrow", "needs spec.cohort", id="borrows from nobody"),
        pytest.param(
            {"quota": {"resources": {"cpu": 1}, "lend": {"cpu": 1}}},
            "quota.lend",
            "nobody to lend to",
            id="nobody to lend to",
        ),
        pytest.param(
            {"cohort": "c", "quota": {"lend": {"cpu": 1}}},
            "quota.lend[cpu]",
            "resources that quota.resources names",
            id="lends what it does not have",
        ),
        pytest.param(
            {"cohort": "c", "quota": {"borrow": {"cpu": "-1"}}}, "quota.borrow[cpu]", "negative", id="borrows less"
        ),
        pytest.param({"preempts": ["Reclaim"]}, "preempts", "Name a cohort", id="takes back from nobody"),
        pytest.param({"preempts": ["Priority", "FairShare"]}, "preempts", "leave [Priority]", id="a share of nothing"),
        pytest.param({"cohort": "c", "preempts": ["All"]}, "preempts[0]", "Reclaim, FairShare, Priority", id="for all"),
        pytest.param({"preempts": ["Priority", "Priority"]}, "preempts", "twice", id="for the same thing twice"),
        pytest.param({"preempts": "Priority"}, "preempts", "must be a list", id="a text for a list"),
        pytest.param({"preempts": [["Priority"]]}, "preempts[0]", "must be one of", id="a list in a list"),
        pytest.param({"minRuntime": "10"}, "minRuntime", "10", id="a time without a unit"),
        pytest.param({"minRuntime": "-1m"}, "minRuntime", "whole hours", id="a negative time"),
        pytest.param({"start": {}}, "start.within", "is required", id="starts whenever"),
        pytest.param({"start": {"within": "9s"}}, "start.within", "at least 10s", id="starts too soon"),
        pytest.param({"start": {"within": "1m", "attempts": 0}}, "start.attempts", "from 1 to 10", id="no attempt"),
        pytest.param({"start": {"within": "1m", "attempts": 11}}, "start.attempts", "from 1 to 10", id="too many"),
        pytest.param({"hold": "Stop"}, "hold", "None, Hold, Drain", id="an unknown hold"),
        pytest.param({"hold": True}, "hold", "None, Hold, Drain", id="a truth for a hold"),
    ],
)
def test_what_cannot_be_shared_is_refused_by_field_and_with_the_remedy(
    spec: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(SpecError) as refused:
        MirrorQueueSpec.read(a_queue(**spec))
    assert refused.value.field == f"spec.{field}"
    assert remedy in refused.value.message


def a_cohort(name: str = "research", **spec: Any) -> dict[str, Any]:
    return {"kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def test_a_cohort_that_says_nothing_is_what_a_name_alone_is() -> None:
    assert CohortSpec.read({"kind": "Cohort", "metadata": {"name": "c"}}) == CohortSpec()
    assert CohortSpec() == CohortSpec(parent=None, weight=Fraction(1), quota=Quota())


def test_a_cohort_that_says_everything() -> None:
    quota = {"resources": {"cpu": 50}, "borrow": {"cpu": 10}, "lend": {"memory": "1Gi"}}
    assert CohortSpec.read(a_cohort(parent="company", weight=2, quota=quota, halfLife="24h")) == CohortSpec(
        half_life=86400,
        parent="company",
        weight=Fraction(2),
        quota=Quota(resources={"cpu": Decimal(50)}, borrow={"cpu": Decimal(10)}, lend={"memory": Decimal(2**30)}),
    )


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        pytest.param({"parent": "a.b"}, "parent", "such as research", id="a parent that is no label"),
        pytest.param({"parent": "research"}, "parent", "name another one", id="its own parent"),
        pytest.param({"weight": "-1"}, "weight", "at least 0", id="a negative weight"),
        pytest.param({"quota": {"borrow": {"cpu": 1}}}, "quota.borrow", "needs spec.parent", id="a root borrows"),
        pytest.param({"quota": {"lend": {"cpu": 0}}}, "quota.lend", "nobody to lend to", id="a root lends"),
        pytest.param({"quota": {"jobs": 3}}, "quota.jobs", "only a MirrorQueue", id="a number of Jobs"),
        pytest.param({"halfLife": "soon"}, "halfLife", "such as 1h30m", id="a half-life that is no duration"),
        pytest.param({"halfLife": "-1h"}, "halfLife", "-1h", id="a negative half-life"),
        pytest.param({"halfLife": "0s"}, "halfLife", "must be at least 60s, not 0s", id="a half-life of nothing"),
        pytest.param({"halfLife": 3600}, "halfLife", "must be a text", id="a number for a half-life"),
        pytest.param({"halfLife": "8761h"}, "halfLife", "must be at most 8760h, not 8761h", id="more than a year"),
    ],
)
def test_a_cohort_that_makes_no_sense_is_refused_by_field(spec: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        CohortSpec.read(a_cohort(**spec))
    assert refused.value.field == f"spec.{field}"
    assert remedy in refused.value.message


TREE = {"a": CohortSpec("b"), "b": CohortSpec("c"), "x": CohortSpec("y"), "y": CohortSpec("z"), "z": CohortSpec("y")}


@pytest.mark.parametrize(
    ("name", "above", "cycle"),
    [
        pytest.param("a", ("a", "b", "c"), (), id="up to a parent that is only a name"),
        pytest.param("c", ("c",), (), id="a name alone"),
        pytest.param("y", ("y", "z"), ("y", "z"), id="in a cycle"),
        pytest.param("x", ("x", "y", "z"), ("y", "z"), id="below a cycle"),
    ],
)
def test_the_way_up_a_tree_that_may_be_none(name: str, above: tuple[str, ...], cycle: tuple[str, ...]) -> None:
    assert upwards(name, TREE) == above
    assert cycle_above(name, TREE) == cycle


NAMES = st.sampled_from("abcdef")


@given(st.dictionaries(NAMES, st.none() | NAMES), NAMES)
def test_every_way_up_ends_at_a_root_or_in_a_cycle(parents: dict[str, str | None], start: str) -> None:
    tree = {name: CohortSpec(parent) for name, parent in parents.items() if parent != name}
    above, cycle = upwards(start, tree), cycle_above(start, tree)
    assert above[0] == start
    assert len(set(above)) == len(above)
    if cycle:
        assert [tree[each].parent for each in cycle] == [*cycle[1:], cycle[0]]
        assert above[-len(cycle) :] == cycle
    else:
        assert above[-1] not in tree or tree[above[-1]].parent is None


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


@pytest.mark.parametrize(
    ("labels", "annotations", "preemptible"),
    [
        pytest.param(None, None, True, id="who says nothing may be stopped"),
        pytest.param({PREEMPTIBLE_LABEL: "false"}, None, False, id="a label"),
        pytest.param(None, {PREEMPTIBLE_LABEL: "false"}, False, id="an annotation"),
        pytest.param({PREEMPTIBLE_LABEL: "true"}, {PREEMPTIBLE_LABEL: "false"}, False, id="of two, false counts"),
        pytest.param({PREEMPTIBLE_LABEL: "true"}, {}, True, id="true is what it is anyway"),
    ],
)
def test_whether_a_job_may_be_stopped(labels: Any, annotations: Any, preemptible: bool) -> None:
    job = a_job(labels, annotations)
    check_preemptible(job)
    assert is_preemptible(job) is preemptible


@pytest.mark.parametrize("value", ["no", "", "False", "0"])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_whether_a_job_may_be_stopped_is_true_or_false(kind: str, value: str) -> None:
    job = a_job(**{kind: {PREEMPTIBLE_LABEL: value}})
    with pytest.raises(SpecError, match='must be "true" or "false"') as refused:
        check_preemptible(job)
    assert refused.value.field == f"metadata.{kind}[{PREEMPTIBLE_LABEL}]"
    assert is_preemptible(job), "what cannot be read protects nobody"


def test_why_a_job_is_taken_back_and_for_whom() -> None:
    job = a_job(
        annotations={PREEMPTED_ANNOTATION: "Reclaim", PREEMPTED_BY_ANNOTATION: "uid-1", PREEMPTIONS_ANNOTATION: "2"}
    )
    assert (preempted_of(job), preempted_by_of(job), preemptions_of(job)) == ("Reclaim", "uid-1", 2)
    assert (preempted_of(a_job()), preempted_by_of(a_job()), preemptions_of(a_job())) == (None, None, 0)


@pytest.mark.parametrize("value", ["", "-1", "many", "1.5", "\u0661", "1" * 20])
def test_a_count_that_is_broken_counts_as_none(value: str) -> None:
    assert preemptions_of(a_job(annotations={PREEMPTIONS_ANNOTATION: value})) == 0


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
        *("halfLife", "cohort", "parent", "borrow", "lend", "preempts", "minRuntime", "start", "within", "attempts"),
        "hold",
    ]
)
NEARLY = st.recursive(
    JSON, lambda inner: st.dictionaries(WORDS, inner, max_size=5) | st.lists(inner, max_size=2), max_leaves=25
)


@settings(max_examples=300)
@given(NEARLY)
def test_whatever_is_in_an_object_it_is_read_or_refused_in_words(spec: Any) -> None:
    for read in (WorkerClusterSpec.read, MirrorQueueSpec.read, CohortSpec.read):
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
