"""What becomes of Kueue's objects, and what is said about what becomes of nothing."""

from typing import Any

import pytest

from multimirror.cli.kueue import Outcome
from tests.unit.cli.kueue_objects import (
    Json,
    cluster_queue,
    findings,
    kueue,
    local_queue,
    quotas,
    spec_of,
    translated,
)

CHANGED, LEFT_OUT, NOTE = Outcome.CHANGED, Outcome.LEFT_OUT, Outcome.NOTE
MULTIKUEUE = {
    "controllerName": "kueue.x-k8s.io/multikueue",
    "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "fleet"},
}


def test_a_simple_queue_is_taken_over_whole() -> None:
    made = translated(
        cluster_queue(
            cohortName="research",
            resourceGroups=quotas(default={"cpu": ("9", "4", "2"), "memory": "36Gi"}),
            fairSharing={"weight": "2"},
            queueingStrategy="StrictFIFO",
            preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            stopPolicy="Hold",
        ),
        local_queue("science"),
        kueue("ResourceFlavor", "default"),
    )
    assert made.objects == (
        {
            "apiVersion": "multimirror.dev/v1alpha1",
            "kind": "MirrorQueue",
            "metadata": {"name": "team-a"},
            "spec": {
                "cohort": "research",
                "weight": 2,
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["science"]}
                    ]
                },
                "queueingStrategy": "StrictFIFO",
                "quota": {
                    "resources": {"cpu": 9, "memory": "36Gi"},
                    "borrow": {"cpu": 4},
                    "lend": {"cpu": 2},
                },
                "preempts": ["Reclaim", "Priority"],
                "hold": "Hold",
            },
        },
    )
    assert made.is_faithful


def test_both_versions_of_kueue_s_api_say_the_same() -> None:
    old = translated(
        cluster_queue(version="v1beta1", cohort="research", admissionChecks=["mk"]),
        kueue("Cohort", "research", "v1beta1", spec={"parent": "company"}),
        kueue("AdmissionCheck", "mk", "v1beta1", spec=MULTIKUEUE),
        kueue("MultiKueueConfig", "fleet", "v1beta1", spec={"clusters": ["east"]}),
    )
    new = translated(
        cluster_queue(cohortName="research", admissionChecksStrategy={"admissionChecks": [{"name": "mk"}]}),
        kueue("Cohort", "research", spec={"parentName": "company"}),
        kueue("AdmissionCheck", "mk", spec=MULTIKUEUE),
        kueue("MultiKueueConfig", "fleet", spec={"clusters": ["east"]}),
    )
    assert old == new
    assert spec_of(new)["cohort"] == "research"
    assert spec_of(new)["workers"] == {"names": ["east"]}
    assert new.workers == ("east",)
    assert spec_of(new, "research", "Cohort") == {"parent": "company"}


def test_a_cohort_keeps_its_pool_its_limits_and_its_weight() -> None:
    made = translated(
        kueue(
            "Cohort",
            "research",
            spec={
                "parentName": "company",
                "resourceGroups": quotas(default={"cpu": ("50", "10", "5")}),
                "fairSharing": {"weight": "500m"},
            },
        )
    )
    assert spec_of(made, "research", "Cohort") == {
        "parent": "company",
        "weight": "0.5",
        "quota": {"resources": {"cpu": 50}, "borrow": {"cpu": 10}, "lend": {"cpu": 5}},
    }
    assert made.is_faithful


@pytest.mark.parametrize(
    ("flavors", "quota"),
    [
        pytest.param({"spot": {"cpu": "4"}, "solid": {"cpu": "500m"}}, {"resources": {"cpu": "4500m"}}, id="added up"),
        pytest.param(
            {"spot": {"memory": "1Gi"}, "solid": {"memory": "512Mi"}},
            {"resources": {"memory": "1536Mi"}},
            id="memory stays readable",
        ),
        pytest.param(
            {"spot": {"cpu": ("4", "2")}, "solid": {"cpu": ("4", "0")}},
            {"resources": {"cpu": 8}, "borrow": {"cpu": 2}},
            id="limits of borrowing are added up",
        ),
        pytest.param(
            {"spot": {"cpu": ("4", "2")}, "solid": {"cpu": "4"}},
            {"resources": {"cpu": 8}},
            id="one flavor may borrow without limit: so may the queue",
        ),
        pytest.param(
            {"spot": {"cpu": ("4", None, "1")}, "solid": {"cpu": "4"}},
            {"resources": {"cpu": 8}, "lend": {"cpu": 5}},
            id="one flavor lends all that it has: that much more is lent",
        ),
    ],
)
def test_flavors_are_added_up_and_named(flavors: dict[str, Json], quota: Json) -> None:
    made = translated(cluster_queue(cohortName="research", resourceGroups=quotas(**flavors)))
    assert spec_of(made)["quota"] == quota
    limited = [each for each in flavors.values() if isinstance(each.get("cpu"), tuple) and each["cpu"][1] is not None]
    assert len(findings(made, CHANGED, "borrowingLimit")) == (1 if len(limited) == 1 else 0)
    (merged,) = findings(made, CHANGED, "nominalQuota")
    assert "flavor spot" in merged.text
    assert "flavor solid" in merged.text


def test_queues_of_a_cohort_that_kept_flavors_apart_are_told_that_they_share_now() -> None:
    apart = translated(
        cluster_queue("a", cohortName="research", resourceGroups=quotas(spot={"cpu": 1})),
        cluster_queue("b", cohortName="group", resourceGroups=quotas(solid={"cpu": 1})),
        kueue("Cohort", "group", spec={"parentName": "research"}),
    )
    (told,) = findings(apart, CHANGED, "flavors of cpu")
    assert (told.about, "solid, spot" in told.text) == ("Cohort research", True)
    alone = translated(
        cluster_queue("a", resourceGroups=quotas(spot={"cpu": 1})),
        cluster_queue("b", resourceGroups=quotas(solid={"cpu": 1})),
    )
    assert findings(alone, CHANGED, "flavors of cpu") == []


def test_what_a_queue_does_not_list_and_others_do_it_does_not_get_for_nothing() -> None:
    made = translated(
        cluster_queue("gpus", resourceGroups=quotas(default={"nvidia.com/gpu": 8, "pods": 100})),
        cluster_queue("plain", resourceGroups=quotas(default={"cpu": 4})),
        cluster_queue("shared", cohortName="c", resourceGroups=quotas(default={"cpu": 4})),
    )
    assert spec_of(made, "plain")["quota"] == {"resources": {"cpu": 4, "nvidia.com/gpu": 0}}
    assert spec_of(made, "shared")["quota"]["borrow"] == {"nvidia.com/gpu": 0}
    assert spec_of(made, "gpus")["quota"]["resources"] == {"nvidia.com/gpu": 8, "pods": 100, "cpu": 0}


def test_limits_without_a_cohort_are_left_out() -> None:
    made = translated(cluster_queue(resourceGroups=quotas(default={"cpu": ("4", "2")})))
    assert spec_of(made)["quota"] == {"resources": {"cpu": 4}}
    assert [each.field for each in findings(made, LEFT_OUT)] == ["limits of cpu"]


@pytest.mark.parametrize(
    ("preemption", "fair_sharing", "preempts", "told"),
    [
        pytest.param({}, False, [], [], id="Never is the default"),
        pytest.param({"reclaimWithinCohort": "Any"}, False, ["Reclaim"], [], id="own quota is taken back"),
        pytest.param(
            {"reclaimWithinCohort": "LowerPriority"},
            False,
            ["Reclaim"],
            [(CHANGED, "reclaimWithinCohort")],
            id="own quota is taken back from everybody",
        ),
        pytest.param({"withinClusterQueue": "LowerPriority"}, False, ["Priority"], [], id="priority in the queue"),
        pytest.param(
            {"withinClusterQueue": "LowerOrNewerEqualPriority"},
            False,
            ["Priority"],
            [(CHANGED, "withinClusterQueue")],
            id="newer ones of the same priority are not stopped",
        ),
        pytest.param(
            {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
            False,
            ["Reclaim"],
            [(LEFT_OUT, "borrowWithinCohort")],
            id="nobody is stopped for somebody who borrows",
        ),
        pytest.param({"reclaimWithinCohort": "Any"}, True, ["Reclaim", "FairShare"], [], id="fair sharing"),
        pytest.param(
            {"withinClusterQueue": "LowerPriority"}, True, ["Priority"], [], id="fair, but stops nobody else's"
        ),
    ],
)
def test_for_what_others_are_stopped(
    preemption: Json, fair_sharing: bool, preempts: list[str], told: list[tuple[Outcome, str]]
) -> None:
    queue = cluster_queue(cohortName="c", preemption=preemption)
    made = translated(queue, local_queue("a"), fair_sharing=fair_sharing)
    assert spec_of(made)["preempts"] == preempts
    heard = [(each.outcome, each.field.rpartition(".")[2]) for each in made.findings if each.outcome is not NOTE]
    assert heard == told


def test_without_a_cohort_only_priority_is_left_to_stop_jobs_for() -> None:
    policies = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    assert spec_of(translated(cluster_queue(preemption=policies)))["preempts"] == ["Priority"]
    assert "preempts" not in spec_of(translated(cluster_queue()))


@pytest.mark.parametrize(("stop", "hold"), [("None", None), ("Hold", "Hold"), ("HoldAndDrain", "Drain")])
def test_a_stopped_queue_is_held(stop: str, hold: str | None) -> None:
    assert spec_of(translated(cluster_queue(stopPolicy=stop))).get("hold") == hold


class TestWhoMayUseAQueue:
    NAMED = "kubernetes.io/metadata.name"

    def test_namespaces_with_a_local_queue_that_the_selector_admits(self) -> None:
        selector = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
        made = translated(
            cluster_queue(namespaceSelector=selector),
            local_queue("two"),
            local_queue("one"),
            local_queue("one", "other"),
        )
        assert spec_of(made)["namespaceSelector"] == {
            "matchLabels": {"team": "a"},
            "matchExpressions": [
                {"key": "x", "operator": "Exists"},
                {"key": self.NAMED, "operator": "In", "values": ["one", "two"]},
            ],
        }
        assert made.is_faithful

    def test_nobody_where_kueue_admits_nobody(self) -> None:
        made = translated(cluster_queue(namespaceSelector=None), local_queue("one"))
        assert spec_of(made)["namespaceSelector"] == {
            "matchExpressions": [{"key": self.NAMED, "operator": "DoesNotExist"}]
        }
        assert made.is_faithful

    def test_without_local_queues_it_is_said_that_more_may_use_it(self) -> None:
        made = translated(cluster_queue(namespaceSelector={"matchLabels": {"team": "a"}}))
        assert spec_of(made)["namespaceSelector"] == {"matchLabels": {"team": "a"}}
        assert len(findings(made, CHANGED, "namespaceSelector")) == 1

    def test_more_namespaces_than_a_selector_can_name_are_not_named_and_that_is_said(self) -> None:
        made = translated(cluster_queue(), *(local_queue(f"n{number}") for number in range(65)))
        assert spec_of(made)["namespaceSelector"] == {}
        assert "65 namespaces" in findings(made, CHANGED, "namespaceSelector")[0].text

    def test_a_selector_that_is_too_large_for_us_admits_nobody(self) -> None:
        values = [f"v{number}" for number in range(65)]
        selector = {"matchExpressions": [{"key": "x", "operator": "In", "values": values}]}
        made = translated(cluster_queue(namespaceSelector=selector), local_queue("one"))
        assert spec_of(made)["namespaceSelector"]["matchExpressions"][0]["operator"] == "DoesNotExist"
        assert len(findings(made, LEFT_OUT, "namespaceSelector")) == 1


def test_jobs_learn_which_label_they_need_where_they_named_local_queues() -> None:
    made = translated(
        cluster_queue("gpus"),
        cluster_queue("plain"),
        local_queue("science", "fast", to="gpus"),
        local_queue("science", "slow", to="plain"),
        local_queue("art", "default", to="gpus"),
    )
    assert [(each.namespace, each.local_queue, each.queue) for each in made.labels] == [
        ("art", "default", "gpus"),
        ("science", "fast", "gpus"),
        ("science", "slow", "plain"),
    ]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"stopPolicy": "Hold"}, "spec.stopPolicy"),
        ({"fairSharing": {"weight": 2}}, "spec.fairSharing.weight"),
        ({"wallTimePolicy": {"wallTimeAllocatedHours": 5}}, "spec.wallTimePolicy"),
        ({"clusterQueue": "nowhere"}, "spec.clusterQueue"),
    ],
)
def test_what_a_local_queue_says_and_we_cannot_is_named(spec: Json, field: str) -> None:
    made = translated(cluster_queue(), local_queue("science", **spec))
    assert [(each.about, each.field) for each in findings(made, LEFT_OUT)] == [("LocalQueue science/user-queue", field)]


class TestWhereJobsMayGo:
    def test_to_the_clusters_of_multikueue_s_configuration_in_its_order(self) -> None:
        made = translated(
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "mk"}]}),
            local_queue("a"),
            kueue("AdmissionCheck", "mk", spec=MULTIKUEUE),
            kueue("MultiKueueConfig", "fleet", spec={"clusters": ["west", "east"]}),
            kueue("MultiKueueCluster", "west", spec={}),
        )
        assert spec_of(made)["workers"] == {"names": ["west", "east"]}
        assert made.is_faithful

    @pytest.mark.parametrize(
        ("others", "why"),
        [
            pytest.param([], "is not among the objects", id="the check is not there"),
            pytest.param(
                [kueue("AdmissionCheck", "mk", spec=MULTIKUEUE)],
                "MultiKueueConfig fleet is not among the objects",
                id="its configuration is not there",
            ),
            pytest.param(
                [kueue("AdmissionCheck", "mk", spec={"controllerName": "kueue.x-k8s.io/provisioning-request"})],
                "there are no checks before a Job is placed (kueue.x-k8s.io/provisioning-request)",
                id="it is another check",
            ),
        ],
    )
    def test_to_every_worker_where_the_clusters_are_not_known_and_that_is_said(
        self, others: list[Json], why: str
    ) -> None:
        made = translated(cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "mk"}]}), *others)
        assert "workers" not in spec_of(made)
        (told,) = findings(made, LEFT_OUT, "admission check mk")
        assert why in told.text
        assert len(findings(made, NOTE, "spec.workers")) == 1


class TestPriorities:
    @staticmethod
    def classes(**values: int) -> list[Json]:
        return [kueue("WorkloadPriorityClass", name, value=value) for name, value in values.items()]

    @staticmethod
    def of_pods(name: str, value: int, **more: Any) -> Json:
        api = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return {**api, "metadata": {"name": name}, "value": value, **more}

    def numbers(self, *objects: Json) -> tuple[dict[str, int], int, int | None]:
        made = translated(cluster_queue(), *objects)
        rows = {row.name: row.number for row in made.priorities.rows}
        return rows, made.priorities.without, spec_of(made).get("maxPriority")

    def test_are_numbers_of_jobs_and_the_highest_is_the_queue_s(self) -> None:
        assert self.numbers(*self.classes(low=10, high=1000)) == ({"low": 10, "high": 1000}, 0, 1000)

    def test_below_zero_all_are_shifted_and_jobs_without_a_class_need_one(self) -> None:
        objects = self.classes(idle=-5, high=10)
        assert self.numbers(*objects) == ({"idle": 0, "high": 15}, 5, 15)
        (told,) = findings(translated(cluster_queue(), *objects), CHANGED, "value")
        assert (told.about, "5 higher" in told.text) == ("WorkloadPriorityClass idle", True)

    def test_of_pods_count_too_but_shift_nothing(self) -> None:
        objects = [
            self.of_pods("room", -10),
            self.of_pods("top", 10**9),
            self.of_pods("system-node-critical", 2 * 10**9),
        ]
        assert self.numbers(*objects) == ({"room": 0, "top": 999_999_999}, 0, 999_999_999)

    def test_the_default_of_pods_is_what_jobs_without_a_class_need(self) -> None:
        rows, without, _ = self.numbers(self.of_pods("usual", 100, globalDefault=True), *self.classes(high=500))
        assert (rows, without) == ({"high": 500, "usual": 100}, 100)

    def test_without_any_there_is_no_highest(self) -> None:
        assert self.numbers() == ({}, 0, None)


class TestNames:
    LONG = "a" * 70

    def test_that_are_too_long_for_labels_are_cut_and_that_is_said(self) -> None:
        made = translated(cluster_queue(self.LONG), local_queue("science", to=self.LONG))
        (queue,) = made.objects
        name = queue["metadata"]["name"]
        assert len(name) <= 63
        assert made.labels[0].queue == name
        assert name in findings(made, CHANGED, "name")[0].text

    def test_of_cohorts_lose_their_dots_wherever_they_are_named(self) -> None:
        made = translated(
            cluster_queue("one", cohortName="research.gpu"),
            kueue("Cohort", "research.gpu", spec={"parentName": "com.pany"}),
        )
        assert spec_of(made, "one")["cohort"] == "research-gpu"
        assert spec_of(made, "research-gpu", "Cohort") == {"parent": "com-pany"}

    def test_never_become_the_name_of_another(self) -> None:
        made = translated(
            cluster_queue("one", cohortName="a.b"), cluster_queue("two", cohortName="a-b"),
            cluster_queue("three", cohortName="a.-b"),
        )  # fmt: skip
        assert len({spec_of(made, name)["cohort"] for name in ("one", "two", "three")}) == 3
        assert spec_of(made, "two")["cohort"] == "a-b"


@pytest.mark.parametrize(
    ("obj", "about", "field"),
    [
        (
            cluster_queue(
                flavorFungibility={"whenCanBorrow": "TryNextFlavor"}, resourceGroups=quotas(a={"cpu": 1}, b={"cpu": 1})
            ),
            "ClusterQueue team-a",
            "spec.flavorFungibility",
        ),
        (
            cluster_queue(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}),
            "ClusterQueue team-a",
            "spec.admissionScope",
        ),
        (cluster_queue(quotaManagement="Automated"), "ClusterQueue team-a", "spec.quotaManagement"),
        (cluster_queue(preemption={"whatever": 1}), "ClusterQueue team-a", "spec.preemption.whatever"),
        (kueue("Cohort", "c", spec={"whatever": 1}), "Cohort c", "spec.whatever"),
        (kueue("Topology", "racks", spec={"levels": []}), "Topology racks", ""),
    ],
)
def test_what_has_no_counterpart_is_left_out_by_name_and_with_a_remedy(obj: Json, about: str, field: str) -> None:
    (told,) = findings(translated(obj), LEFT_OUT)
    assert (told.about, told.field) == (about, field)
    assert told.remedy


def test_what_a_flavor_says_about_nodes_is_left_out_by_name_where_a_queue_uses_it() -> None:
    spec = {"nodeLabels": {"cloud": "spot"}, "tolerations": [{"operator": "Exists"}], "topologyName": "racks"}
    flavors = [kueue("ResourceFlavor", name, spec=spec) for name in ("used", "unused")]
    made = translated(cluster_queue(resourceGroups=quotas(used={"cpu": 1})), *flavors)
    assert [(each.about, each.field) for each in findings(made, LEFT_OUT)] == [
        ("ResourceFlavor used", "spec.nodeLabels"),
        ("ResourceFlavor used", "spec.tolerations"),
        ("ResourceFlavor used", "spec.topologyName"),
    ]
    assert "cloud=spot" in findings(made, LEFT_OUT)[0].text


def test_defaults_that_an_api_server_filled_in_are_no_findings() -> None:
    filled_in = cluster_queue(
        flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        preemption={
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
        queueingStrategy="BestEffortFIFO",
        stopPolicy="None",
        resourceGroups=quotas(a={"cpu": 1}),
    )
    filled_in["status"] = {"pendingWorkloads": 3}
    assert translated(filled_in, local_queue("x", stopPolicy="None", fairSharing={"weight": "1"})).is_faithful


def test_a_cycle_of_cohorts_is_told_and_taken_as_it_is() -> None:
    made = translated(
        kueue("Cohort", "a", spec={"parentName": "b"}),
        kueue("Cohort", "b", spec={"parentName": "a"}),
        cluster_queue("q", cohortName="a", resourceGroups=quotas(x={"cpu": 1})),
        cluster_queue("p", cohortName="b", resourceGroups=quotas(y={"cpu": 1})),
    )
    assert [each.about for each in findings(made, NOTE, "parent")] == ["Cohort a"]
    assert spec_of(made, "a", "Cohort") == {"parent": "b"}


def test_with_weights_and_without_fair_sharing_the_flag_is_named() -> None:
    queue = cluster_queue(cohortName="c", fairSharing={"weight": 2})
    assert [each.about for each in findings(translated(queue), NOTE)].count("Weights") == 1
    assert "Weights" not in [each.about for each in findings(translated(queue, fair_sharing=True), NOTE)]
