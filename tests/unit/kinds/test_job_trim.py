"""What the caches keep of a Job: enough to decide on, and nothing that somebody else can make large."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimirror.api import ATTEMPT_LABEL, CLUSTERS_ANNOTATION, ORIGIN_UID_LABEL, QUEUE_LABEL, SpecError
from multimirror.api.jobs import allowed_clusters
from multimirror.api.limits import size_of
from multimirror.api.names import ESTIMATED_START_ANNOTATION, POSITION_ANNOTATION
from multimirror.kinds import JOB
from multimirror.kinds.job.trim import trim_copy
from multimirror.kinds.pod_sets import total
from multimirror.kinds.reserved import reserved_for
from tests.unit.reconcile.builders import TIME, a_copy, a_job

Json = dict[str, Any]


def a_rich_job() -> Json:
    job = a_job().on("w1").started().of_size(3, 6, "Indexed").job
    job["metadata"]["labels"] |= {"team": "a", "app": "b"}
    job["metadata"]["annotations"] |= {"note": "x" * 1000}
    job["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]
    job["spec"] |= {
        "backoffLimitPerIndex": 1,
        "activeDeadlineSeconds": 60,
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "podFailurePolicy": {"rules": []},
        "ttlSecondsAfterFinished": 5,
        "template": {
            "metadata": {"labels": {"l": "v"}, "annotations": {"big": "y" * 5000}},
            "spec": {
                "terminationGracePeriodSeconds": 7,
                "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                    {"name": "d", "env": [{"name": "E", "value": "z" * 5000}], "resources": {"limits": {"cpu": "1"}}},
                ],
            },
        },
    }
    return job


def test_a_trimmed_job_is_counted_and_judged_as_the_whole_one() -> None:
    whole = a_rich_job()
    trimmed = JOB.trim(copy.deepcopy(whole))
    assert total(JOB.pod_sets(trimmed)) == total(JOB.pod_sets(whole))
    assert reserved_for(JOB, trimmed) == reserved_for(JOB, whole)
    assert JOB.template_of(trimmed) == JOB.template_of(whole)
    assert JOB.size_of(trimmed) == JOB.size_of(whole) == size_of(whole)
    assert JOB.safe_after(trimmed, 1.0) == JOB.safe_after(whole, 1.0)
    assert trimmed["status"] == whole["status"]
    for key in ("parallelism", "completions", "completionMode", "backoffLimitPerIndex", "activeDeadlineSeconds"):
        assert trimmed["spec"][key] == whole["spec"][key]
    observed = {"startTime": TIME, "active": 2, "completedIndexes": "0", "succeeded": 1, "failedIndexes": ""}
    assert JOB.mirror(trimmed, observed) == JOB.mirror(whole, observed)


def test_nothing_of_a_template_nor_of_its_users_own_notes_is_kept() -> None:
    text = json.dumps(JOB.trim(a_rich_job()))
    assert "yyy" not in text
    assert "zzz" not in text
    assert "xxx" not in text
    assert "podFailurePolicy" not in text
    assert "kubectl" not in text
    assert len(text) < 1500


def test_a_trimmed_job_is_trimmed_again_into_itself_as_to_what_counts() -> None:
    once = JOB.trim(a_rich_job())
    assert JOB.template_of(once) == JOB.template_of(a_rich_job())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: t["spec"]["containers"][0]["resources"]["requests"].update(cpu="1m"), id="requests"),
        pytest.param(lambda t: t["metadata"]["labels"].update(l="w"), id="a label"),
        pytest.param(lambda t: t["spec"].update(nodeSelector={"a": "b"}), id="where its pods may run"),
    ],
)
def test_another_template_has_another_digest(change: Any) -> None:
    job = a_rich_job()
    before = JOB.template_of(JOB.trim(copy.deepcopy(job)))
    change(job["spec"]["template"])
    assert JOB.template_of(JOB.trim(job)) != before


def test_the_order_of_fields_makes_no_other_digest() -> None:
    job = a_rich_job()
    turned = json.loads(json.dumps(job, sort_keys=True))
    assert JOB.template_of(turned) == JOB.template_of(job)


def test_a_job_with_too_many_resource_names_is_bounded_and_says_so() -> None:
    job = a_job().job
    names = {f"example.com/r{number}": "1" for number in range(70)}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", **names}}
    trimmed = JOB.trim(copy.deepcopy(job))
    assert "71 different resources" in JOB.problem_of(trimmed)
    assert JOB.problem_of(job) == JOB.problem_of(trimmed)
    assert len(json.dumps(trimmed)) < 5000
    assert JOB.problem_of(JOB.trim(a_rich_job())) == ""


def test_what_its_user_writes_into_our_own_domain_is_bounded_too() -> None:
    job = a_job().on("w1").job
    junk = {f"multimirror.dev/junk-{number}": "j" * 200_000 for number in range(100)}
    job["metadata"]["annotations"] |= {**junk, CLUSTERS_ANNOTATION: "w1," + "w2," * 50_000 + "w3"}
    trimmed = JOB.trim(job)
    assert len(json.dumps(trimmed)) < 200_000
    assert trimmed["metadata"]["annotations"]["multimirror.dev/cluster"] == "w1"
    with pytest.raises(SpecError):
        allowed_clusters(trimmed)


def test_what_we_show_of_its_position_is_seen_whatever_its_user_writes_beside_it() -> None:
    """Else it would be written anew each minute."""
    job = a_job().job
    shown = {POSITION_ANNOTATION: "3", ESTIMATED_START_ANNOTATION: f"about {TIME}"}
    junk = {f"multimirror.dev/a-{number}": "j" for number in range(100)}
    job["metadata"]["annotations"] = {**job["metadata"].get("annotations", {}), **junk, **shown}
    assert JOB.trim(job)["metadata"]["annotations"].items() >= shown.items()


def test_a_copy_keeps_what_is_kept_in_step_its_status_and_our_labels() -> None:
    found = a_copy("w1").started().job
    found["metadata"]["labels"] |= {"theirs": "t"}
    found["metadata"]["annotations"] = {"note": "x" * 1000}
    trimmed = trim_copy(found)
    assert set(trimmed["metadata"]["labels"]) == set(found["metadata"]["labels"]) - {"theirs"}
    assert trimmed["metadata"]["labels"].keys() >= {ORIGIN_UID_LABEL, ATTEMPT_LABEL}
    assert "annotations" not in trimmed["metadata"]
    assert "template" not in trimmed["spec"]
    original, copied = a_job().on("w1").job, a_copy("w1").started()
    whole = JOB.in_step(original, copied.copy, clock=0.0, may_renew=True)
    copied.job = trim_copy(copied.job)
    assert JOB.in_step(original, copied.copy, clock=0.0, may_renew=True) == whole
    assert JOB.mirror(original, trimmed["status"]) == JOB.mirror(original, found["status"])


def test_a_queue_label_is_kept() -> None:
    assert JOB.trim(a_job().job)["metadata"]["labels"] == {QUEUE_LABEL: "q"}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("conditions", "active", "uncountedTerminatedPods", "completedIndexes", "startTime")


@given(spec=anything, status=st.dictionaries(st.sampled_from(FIELDS), anything) | anything, labels=anything)
def test_whatever_a_worker_sends_a_copy_is_trimmed(spec: Any, status: Any, labels: Any) -> None:
    metadata = {"name": "n", "namespace": "team", "uid": "u", "resourceVersion": "1", "labels": labels}
    trimmed = trim_copy({"metadata": metadata, "spec": spec, "status": status})
    assert trimmed["metadata"]["name"] == "n"
    JOB.mirror(a_job().job, trimmed.get("status"))


def test_a_status_of_any_size_is_kept_within_bounds() -> None:
    huge = {"type": "T", "status": "True", "message": "m" * 500_000}
    uids = [f"{number:0100}" for number in range(20_000)]
    status = {"conditions": [huge] * 3, "completedIndexes": "1," * 600_000, "uncountedTerminatedPods": {"failed": uids}}
    found = a_copy("w1").job
    found["status"] = status
    assert len(json.dumps(trim_copy(found))) < 300_000
