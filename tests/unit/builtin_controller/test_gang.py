"""Which Jobs are gangs, what their objects are called, and which existing objects are used."""

from typing import Any

import pytest

from builtin_controller import gang
from builtin_controller.claiming import adoption, claim, release
from builtin_controller.job import Job
from builtin_controller.pods import Pod
from multimirror.batch import Json
from tests.unit.builtin_controller.vectors import FINALIZER, a_job, a_pod, at, indexed, running


@pytest.mark.parametrize(
    ("job", "answer"),
    [
        pytest.param(indexed(2), True, id="Indexed, all at once"),
        pytest.param(indexed(1), False, id="one pod is no gang"),
        pytest.param(indexed(3, 2), False, id="not all at once"),
        pytest.param(a_job(completions=2, parallelism=2), False, id="NonIndexed"),
        pytest.param(indexed(2, template={"schedulingGroup": {"podGroupName": "g"}}), False, id="opted out"),
    ],
)
def test_who_is_a_gang(job: Json, answer: bool) -> None:
    assert gang.qualifies(Job.of(job)) is answer


@pytest.mark.parametrize(
    ("status", "pods", "answer"),
    [
        pytest.param({}, 0, True, id="nothing happened yet"),
        pytest.param({}, 1, False, id="it has pods"),
        pytest.param({"startTime": at(0)}, 0, False, id="it was started"),
        pytest.param({"succeeded": 1}, 0, False, id="it succeeded somewhere"),
        pytest.param({"failed": 1}, 0, False, id="it failed somewhere"),
        pytest.param({"conditions": [{"type": "Suspended", "status": "False"}]}, 0, False, id="it was suspended once"),
    ],
)
def test_who_is_new(status: Json, pods: int, answer: bool) -> None:
    assert gang.is_new(Job.of(indexed(2, status=status)), pods) is answer


def test_names_are_kubernetes_own() -> None:
    workload = gang.workload_name("my-job", "uid-123")
    assert workload == "my-job-795ddf89fd"
    assert gang.pod_group_name(workload, "my-job-pgt-0") == "my-job-795ddf89fd-my-job-pgt-0-74cffdfb57"


@pytest.mark.parametrize(
    ("workload", "template"),
    [("w" * 253, "t" * 10), ("w" * 10, "t" * 253), ("w" * 253, "t" * 253), ("w" * 120, "t" * 121)],
)
def test_long_names_are_cut_fairly(workload: str, template: str) -> None:
    name = gang.pod_group_name(workload, template)
    assert len(name) <= 253
    assert name.startswith(workload[:100])
    assert f"-{template[:100]}" in name


def test_a_long_job_name_is_cut() -> None:
    assert len(gang.workload_name("j" * 253, "u")) <= 253


def workload(uid: str = "job-uid", templates: int = 1) -> Json:
    owner = {"kind": "Job", "name": "j", "uid": uid, "controller": True}
    return {"metadata": {"name": "w", "ownerReferences": [owner]}, "spec": {"podGroupTemplates": [{}] * templates}}


@pytest.mark.parametrize(
    ("found", "used"),
    [
        pytest.param([workload()], True, id="ours"),
        pytest.param([workload("other")], False, id="somebody else's"),
        pytest.param([workload(), workload()], False, id="two of them"),
        pytest.param([workload(templates=2)], False, id="another shape"),
    ],
)
def test_which_workload_is_used(found: list[Json], used: bool) -> None:
    assert (gang.usable_workload(Job.of(indexed(2)), found) is not None) is used
    if found[0]["spec"]["podGroupTemplates"] == [{}]:
        assert (gang.usable_pod_group(Job.of(indexed(2)), found) is not None) is used


def labelled(name: str, uid: str, **more: Any) -> Pod:
    raw = a_pod(name, **more)
    raw["metadata"]["labels"] = {"controller-uid": uid}
    return Pod(raw)


@pytest.mark.parametrize(
    ("controlled", "ownerless", "deleting", "expected"),
    [
        pytest.param([labelled("a", "job-uid")], [], False, "own a", id="labels match: it stays"),
        pytest.param([labelled("a", "x")], [], False, "release a", id="labels changed: it is let go"),
        pytest.param([labelled("a", "x")], [], True, "", id="not by a Job that is being deleted"),
        pytest.param([labelled("a", "job-uid")], [], True, "own a", id="which keeps what it has"),
        pytest.param([], [labelled("a", "job-uid")], False, "adopt a", id="ownerless and matching: adopted"),
        pytest.param([], [labelled("a", "x")], False, "", id="ownerless and not matching"),
        pytest.param([], [labelled("a", "job-uid", deleting=True)], False, "", id="not one that is being deleted"),
        pytest.param([], [labelled("a", "job-uid")], True, "", id="nor by a Job that is being deleted"),
    ],
)
def test_whose_pods_are_whose(controlled: list[Pod], ownerless: list[Pod], deleting: bool, expected: str) -> None:
    claims = claim(Job.of(a_job(deleting=deleting)), controlled, ownerless)
    found = [
        f"{what} {pod.name}"
        for what, pods in (("own", claims.own), ("adopt", claims.adopt), ("release", claims.release))
        for pod in pods
    ]
    assert " ".join(found) == expected


def test_adoption_and_release_name_the_pod_they_mean() -> None:
    job, pod = Job.of(a_job(status=running())), Pod(a_pod("a"))
    adopted = adoption(job, pod)["metadata"]
    assert adopted["uid"] == "a"
    assert adopted["finalizers"] == [FINALIZER]
    assert adopted["ownerReferences"][0]["uid"] == "job-uid"
    released = release(job, pod)["metadata"]
    assert released["uid"] == "a"
    assert released["ownerReferences"] == [{"$patch": "delete", "uid": "job-uid"}]
    assert released["$deleteFromPrimitiveList/finalizers"] == [FINALIZER]
