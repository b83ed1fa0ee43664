"""The story of a Job: told in the order of things, from whatever the clusters still know."""

from typing import Any

from multimirror.api import ATTEMPT_LABEL, CLUSTER_ANNOTATION, MANAGED_BY, QUEUE_LABEL
from multimirror.cli.timeline import timeline

Json = dict[str, Any]


def at(second: int) -> str:
    return f"2026-11-16T12:00:{second:02}Z"


def a_job(**status: Any) -> Json:
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "u",
        "creationTimestamp": at(0),
        "labels": {QUEUE_LABEL: "gpu"},
        "annotations": {CLUSTER_ANNOTATION: "east"},
    }
    return {"metadata": metadata, "spec": {"managedBy": MANAGED_BY}, "status": status}


def an_event(second: int, reason: str, message: str, *, pod: bool = False, count: int = 1) -> Json:
    return {
        "metadata": {"name": "e"},
        "reason": reason,
        "message": message,
        "type": "Warning" if pod else "Normal",
        "count": count,
        "lastTimestamp": at(second),
        "involvedObject": {"kind": "Pod", "name": "train-x1"} if pod else {"kind": "Job", "name": "train"},
    }


def a_pod(name: str, second: int, *, exit_code: int | None = None, index: int | None = None) -> Json:
    ended = {"terminated": {"exitCode": exit_code, "finishedAt": at(second)}}
    state = ended if exit_code is not None else {"running": {}}
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)} if index is not None else {}
    phase = "Running" if exit_code is None else "Succeeded" if exit_code == 0 else "Failed"
    return {
        "metadata": {"name": name, "creationTimestamp": at(second), "annotations": annotations},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]},
    }


def test_everything_in_one_second_is_told_in_the_order_in_which_it_comes_about() -> None:
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": at(0), "reason": "CompletionsReached"}]
    copy = {"metadata": {"creationTimestamp": at(0), "labels": {ATTEMPT_LABEL: "1"}}}
    told = timeline(
        a_job(startTime=at(0), conditions=conditions),
        [an_event(0, "Assigned", "runs on worker east"), an_event(0, "Waiting", "queue gpu is full", count=3)],
        cluster="east",
        copy=copy,
        pods=[a_pod("train-x1", 0, exit_code=0, index=4)],
        events_there=[an_event(0, "SuccessfulCreate", "Created pod: train-x1")],
    )
    assert [(entry.cluster, entry.what) for entry in told] == [
        ("management", "created; admitted as multimirror.dev/dispatcher's, queue gpu"),
        ("management", "waits: queue gpu is full (3 times)"),
        ("management", "placed: runs on worker east"),
        ("east", "copy made (attempt 1)"),
        ("east", "started"),
        ("east", "pod train-x1 (index 4) made on node-1"),
        ("east", "pod train-x1 (index 4) succeeded"),
        ("management", "Complete (CompletionsReached)"),
    ]


def test_a_job_is_placed_before_its_copy_is_made_although_the_event_is_written_after() -> None:
    copy = {"metadata": {"creationTimestamp": at(4), "labels": {ATTEMPT_LABEL: "1"}}}
    told = timeline(a_job(), [an_event(5, "Assigned", "runs on worker east")], cluster="east", copy=copy)
    assert [entry.what.partition(":")[0] for entry in told][1:] == ["placed", "copy made (attempt 1)"]


def test_retries_are_told_pod_by_pod_with_what_the_cluster_warned_of() -> None:
    warned = an_event(2, "FailedScheduling", "0/3 nodes\nare available", pod=True)
    told = timeline(
        a_job(), cluster="east", pods=[a_pod("train-x1", 1, exit_code=137), a_pod("train-x2", 3)], events_there=[warned]
    )
    assert [entry.what for entry in told][1:] == [
        "pod train-x1 made on node-1",
        "pod train-x1 failed with exit code 137",
        "pod train-x1: FailedScheduling: 0/3 nodes are available",
        "pod train-x2 made on node-1",
    ]


def test_of_many_pods_only_those_that_failed_are_told_one_by_one() -> None:
    pods = [a_pod(f"train-{n}", 1, exit_code=0) for n in range(30)] + [a_pod("train-bad", 2, exit_code=1)]
    told = [entry.what for entry in timeline(a_job(), cluster="east", pods=pods)]
    assert told[1:] == [
        "pod train-bad made on node-1",
        "pod train-bad failed with exit code 1",
        "31 pods: 1 failed, 30 succeeded; those that failed are told one by one",
    ]


def test_a_job_that_was_never_made_ours_is_told_so() -> None:
    job = a_job()
    job["spec"] = {}
    assert "was not made multimirror's: it runs on this cluster" in timeline(job)[0].what
