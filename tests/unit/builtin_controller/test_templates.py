"""What a created pod looks like, and what it says of its index."""

import pytest

from builtin_controller.backoff import Record, updated
from builtin_controller.job import Job
from builtin_controller.pods import Pod, trim_pod
from builtin_controller.templates import indexed_prefix, new_pod, plain_prefix
from tests.unit.builtin_controller.vectors import FINALIZER, INDEX, NOW, a_job, a_pod, at, indexed, sync


def test_a_pod_of_a_plain_job() -> None:
    job = a_job()
    assert new_pod(Job.of(job)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "j-",
            "namespace": "ns",
            "labels": {"controller-uid": "job-uid"},
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "j",
                    "uid": "job-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": job["spec"]["template"]["spec"],
    }


def test_a_pod_of_an_indexed_job() -> None:
    pod = new_pod(Job.of(indexed(3)), 2)
    assert pod["metadata"]["generateName"] == "j-2-"
    assert pod["metadata"]["labels"][INDEX] == pod["metadata"]["annotations"][INDEX] == "2"
    assert pod["spec"]["hostname"] == "j-2"
    assert pod["spec"]["containers"][0]["env"] == [
        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}
    ]


def test_init_containers_know_their_index_too() -> None:
    job = indexed(1, template={"initContainers": [{"name": "init"}]})
    assert new_pod(Job.of(job), 0)["spec"]["initContainers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


def test_a_variable_that_the_user_defined_is_left_alone() -> None:
    own = [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]
    job = indexed(1, template={"containers": [{"name": "main", "env": own}]})
    assert new_pod(Job.of(job), 0)["spec"]["containers"][0]["env"] == own


def test_the_job_in_the_cache_is_not_touched() -> None:
    job = indexed(1)
    before = repr(job)
    new_pod(Job.of(job), 0)
    sync(job, [a_pod("a", "Succeeded", index=0)])
    assert repr(job) == before


def test_the_users_finalizers_annotations_and_labels_are_kept() -> None:
    job = a_job()
    job["spec"]["template"]["metadata"] = {
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["x/y", FINALIZER],
        "name": "ignored",
        "ownerReferences": [{}],
    }
    metadata = new_pod(Job.of(job))["metadata"]
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d"}
    assert metadata["finalizers"] == ["x/y", FINALIZER]
    assert "name" not in metadata
    assert len(metadata["ownerReferences"]) == 1


def test_a_pod_of_a_gang() -> None:
    pod = sync(indexed(2), pod_group="g").created[0]
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    assert len(pod["metadata"]["ownerReferences"]) == 1


@pytest.mark.parametrize(
    ("name", "index", "prefix"),
    [
        pytest.param("short", 7, "short-7-", id="short"),
        pytest.param("a" * 63, 7, "a" * 55 + "-7-", id="cut so that the index is not lost"),
        pytest.param("a" * 63, 12345, "a" * 51 + "-12345-", id="the longer the index"),
        pytest.param("a" * 55, 7, "a" * 55 + "-7-", id="just fits"),
    ],
)
def test_names_of_indexed_pods(name: str, index: int, prefix: str) -> None:
    assert indexed_prefix(name, index) == prefix
    assert len(prefix) <= 58


def test_names_of_plain_pods() -> None:
    assert plain_prefix("a" * 63) == "a" * 63 + "-"


def finish(**changes: object) -> float:
    pod = a_pod("p", "Failed", ended=-30)
    pod["status"] |= changes
    return Pod(pod).finish_time() - NOW


def test_a_pod_ended_when_its_last_container_did() -> None:
    first = {"name": "a", "state": {"terminated": {"finishedAt": at(-9)}}}
    last = {"name": "b", "state": {"terminated": {"finishedAt": at(-4)}}}
    assert finish(containerStatuses=[first, last]) == -4


def test_or_when_it_was_no_longer_ready() -> None:
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": at(-7)}]
    assert finish(containerStatuses=[{"name": "a", "state": {"running": {}}}], conditions=conditions) == -7


def test_or_when_it_was_deleted() -> None:
    pod = a_pod("p", "Failed", deleting=True)
    pod["status"] = {"phase": "Failed"}
    pod["metadata"] |= {"deletionTimestamp": at(20), "deletionGracePeriodSeconds": 30}
    assert Pod(pod).finish_time() == NOW - 10


def test_or_when_it_was_created() -> None:
    pod = a_pod("p", "Failed", created=-80)
    pod["status"] = {"phase": "Failed"}
    assert Pod(pod).finish_time() == NOW - 80


def test_a_sidecar_ends_after_the_others() -> None:
    pod = a_pod("p", "Failed", ended=-30)
    pod["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]
    side = {"name": "side", "state": {"terminated": {"finishedAt": at(-20)}}}
    init = {"name": "init", "state": {"terminated": {"finishedAt": at(-1)}}}
    pod["status"]["initContainerStatuses"] = [init, side]
    assert Pod(pod).finish_time() == NOW - 20
    assert Pod(trim_pod(pod)).finish_time() == NOW - 20


@pytest.mark.parametrize(
    ("before", "succeeded", "failed", "after"),
    [
        pytest.param(Record(), [], [-5], Record(1, NOW - 5), id="the first failure"),
        pytest.param(Record(2, NOW - 50), [], [-9, -5], Record(4, NOW - 5), id="more failures"),
        pytest.param(Record(2, NOW - 50), [-3], [], Record(), id="a success clears them"),
        pytest.param(
            Record(2, NOW - 50), [-10], [-20, -5], Record(1, NOW - 5), id="only failures after the success count"
        ),
        pytest.param(Record(2, NOW - 50), [-5], [-5], Record(), id="a failure in the same second does not"),
        pytest.param(Record(2, NOW - 50), [], [], Record(2, NOW - 50), id="nothing ended"),
    ],
)
def test_failures_since_the_last_success(
    before: Record, succeeded: list[float], failed: list[float], after: Record
) -> None:
    won = [Pod(a_pod(f"s{time}", "Succeeded", ended=time)) for time in succeeded]
    lost = [Pod(a_pod(f"f{time}", "Failed", ended=time)) for time in failed]
    assert updated(before, won, lost) == after
