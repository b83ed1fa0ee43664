"""Whatever Kueue's objects say: what is made of them can be applied, gives no queue less than it had, and no line of a
report becomes YAML."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from multimirror.api import MirrorQueueSpec
from multimirror.batch.quantities import quantity
from multimirror.cli.kueue import BadObject, Sourced, read_objects, translate
from multimirror.cli.kueue.report import as_yaml, report
from tests.unit.cli.kueue_objects import Json, cluster_queue, kueue, local_queue, quotas, translated

_AMOUNTS = st.sampled_from(["0", "1", "500m", "1Gi", "3Ki", "1e3", "7"])
_LIMITS = st.one_of(st.none(), _AMOUNTS)
_NAME_LIST = ("a", "b", "a.b", "x" * 70, "team-1")
_NAMES = st.sampled_from(_NAME_LIST)
_GROUPS = st.dictionaries(
    st.sampled_from(["spot", "solid"]),
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.tuples(_AMOUNTS, _LIMITS, _LIMITS), min_size=1),
).map(lambda flavors: quotas(**flavors))


@st.composite
def objects(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = []
    weights = st.sampled_from([None, {"weight": 0}, {"weight": "250m"}, {"weight": 3}])
    for name in draw(st.lists(_NAMES, unique=True, max_size=4)):
        policies = {
            "reclaimWithinCohort": draw(st.sampled_from(["Never", "LowerPriority", "Any"])),
            "withinClusterQueue": draw(st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
        }
        found.append(
            cluster_queue(
                name,
                cohortName=draw(st.one_of(st.none(), _NAMES)),
                resourceGroups=draw(_GROUPS),
                preemption=policies,
                fairSharing=draw(weights),
                stopPolicy=draw(st.sampled_from(["None", "Hold", "HoldAndDrain"])),
                namespaceSelector=draw(st.sampled_from([None, {}, {"matchLabels": {"team": "a"}}])),
            )
        )
        if draw(st.booleans()):
            found.append(local_queue(draw(st.sampled_from(["one", "two"])), name[:10] + "-lq", to=name))
    for name in draw(st.lists(_NAMES, unique=True, max_size=3)):
        parent = draw(st.sampled_from([None, *(each for each in _NAME_LIST if each != name)]))
        found.append(
            kueue(
                "Cohort",
                name,
                spec={"parentName": parent, "resourceGroups": draw(_GROUPS), "fairSharing": draw(weights)},
            )
        )
    for number, value in enumerate(draw(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3))):
        found.append(kueue("WorkloadPriorityClass", f"p{number}", value=value))
    return found


@given(objects(), st.booleans())
def test_whatever_is_made_our_own_readers_take(found: list[Json], fair_sharing: bool) -> None:
    made = translated(*found, fair_sharing=fair_sharing)
    for each in made.objects:
        assert len(each["metadata"]["name"]) <= 63
        if each["kind"] == "MirrorQueue":
            MirrorQueueSpec.read(each)
    assert len({(each["kind"], each["metadata"]["name"]) for each in made.objects}) == len(made.objects)


@given(objects(), st.booleans())
def test_cohorts_too(found: list[Json], fair_sharing: bool) -> None:
    cohorts = pytest.importorskip("multimirror.api.cohorts", reason="Cohort is not part of the API yet")
    for each in translated(*found, fair_sharing=fair_sharing).objects:
        if each["kind"] == "Cohort":
            cohorts.CohortSpec.read(each)


@given(objects())
def test_no_queue_gets_less_than_it_had(found: list[Json]) -> None:
    made = translated(*found)
    queues = sorted(each["metadata"]["name"] for each in found if each["kind"] == "ClusterQueue")
    ours = [each for each in made.objects if each["kind"] == "MirrorQueue"]
    by_old_name = {each["metadata"]["name"]: each for each in ours if each["metadata"]["name"] in queues}
    for queue in (each for each in found if each["metadata"]["name"] in by_old_name and each["kind"] == "ClusterQueue"):
        spec = by_old_name[queue["metadata"]["name"]]["spec"]
        had: dict[str, Any] = {}
        for group in queue["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for each in flavor["resources"]:
                    had[each["name"]] = had.get(each["name"], 0) + quantity(each["nominalQuota"])
        assert {name: quantity(spec["quota"]["resources"][name]) for name in had} == had


@given(objects())
def test_what_is_written_is_what_was_made(found: list[Json]) -> None:
    made = translated(*found)
    assert [each for each in yaml.safe_load_all(as_yaml(made)) if each is not None] == list(made.objects)


_KEYS = (
    "spec", "metadata", "name", "namespace", "value", "resourceGroups", "flavors", "resources", "nominalQuota",
    "cohort", "fairSharing", "weight", "namespaceSelector", "preemption", "admissionChecks", "whatever",
)  # fmt: skip
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
_JUNK = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=20,
)
_KINDS = ["ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass", "AdmissionCheck", "Job"]


@given(_JUNK, st.sampled_from(_KINDS), st.booleans())
def test_nonsense_is_refused_with_where_it_stands_and_nothing_else_happens(junk: Any, kind: str, whole: bool) -> None:
    obj = junk if whole or not isinstance(junk, dict) else {**kueue(kind, "x", namespace="n"), **junk}
    refusal = ""
    try:
        translate(read_objects([Sourced("queues.yaml, document 2", obj)]))
    except BadObject as error:
        refusal = str(error)
    assert not refusal or refusal.startswith("queues.yaml, document 2: ")


@given(st.text(st.sampled_from("a\n\r\u2028\u2029\x85\x0b\x0c\x1c-: #{}[]\t")))
def test_a_text_from_elsewhere_never_becomes_yaml_that_is_applied(text: str) -> None:
    flavor = kueue("ResourceFlavor", "spot", spec={"nodeLabels": {"zone": text}})
    other = kueue("Topology", f"t{text}")
    made = translated(cluster_queue(resourceGroups=quotas(spot={"cpu": 1})), flavor, other)
    assert [each for each in yaml.safe_load_all(as_yaml(made)) if each is not None] == list(made.objects)
    assert all(len(line.splitlines()) <= 1 for line in report(made))
    json.dumps(made.objects)
