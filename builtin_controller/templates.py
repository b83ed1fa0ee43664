"""The pods that are created: the Job's template, with what makes a pod of this Job, and of this index."""

from typing import Final

from builtin_controller import failure_policy
from builtin_controller.job import Job
from builtin_controller.pods import Pod
from builtin_controller.vocabulary import (
    FAILURE_COUNT_KEY,
    IGNORED_FAILURE_COUNT_KEY,
    INDEX_KEY,
    INDEX_VARIABLE,
    TRACKING_FINALIZER,
)
from multimirror.batch import Json
from multimirror.batch.names import dns_subdomain

_LONGEST_PREFIX: Final = 58  # 63 for a name, less the five random characters that the server adds


def new_pod(job: Job, index: int | None = None, *, replaces: Pod | None = None, pod_group: str | None = None) -> Json:
    """A pod to create; `replaces` is the failed pod of the index, whose failures are handed on."""
    metadata = job.template.get("metadata") or {}
    labels = dict(metadata.get("labels") or {})
    annotations = dict(metadata.get("annotations") or {})
    finalizers = list(metadata.get("finalizers") or ())
    if TRACKING_FINALIZER not in finalizers:
        finalizers.append(TRACKING_FINALIZER)
    spec = dict(job.template.get("spec") or {})
    prefix = plain_prefix(job.name)
    if index is not None:
        labels[INDEX_KEY] = annotations[INDEX_KEY] = str(index)
        prefix = indexed_prefix(job.name, index)
        spec["hostname"] = f"{job.name}-{index}"
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [_with_index_variable(container) for container in spec[kind]]
        if job.per_index:
            counted, ignored = _handed_on(job, replaces)
            annotations[FAILURE_COUNT_KEY] = str(counted)
            if ignored:
                annotations[IGNORED_FAILURE_COUNT_KEY] = str(ignored)
    if pod_group is not None:
        spec["schedulingGroup"] = {"podGroupName": pod_group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": job.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "finalizers": finalizers,
            "ownerReferences": [controller_reference(job)],
        },
        "spec": spec,
    }


def controller_reference(job: Job) -> Json:
    """How a pod of this Job says whose it is."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def plain_prefix(name: str) -> str:
    """The dash is left out after a name that no pod's name could begin with anyway."""
    return name if dns_subdomain(name[:-1] + "a") else f"{name}-"


def indexed_prefix(name: str, index: int) -> str:
    end = f"-{index}-"
    return name[: _LONGEST_PREFIX - len(end)] + end


def _with_index_variable(container: Json) -> Json:
    variables = container.get("env") or []
    if any(variable.get("name") == INDEX_VARIABLE for variable in variables):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
    return {**container, "env": [*variables, {"name": INDEX_VARIABLE, "valueFrom": source}]}


def _handed_on(job: Job, replaced: Pod | None) -> tuple[int, int]:
    if replaced is None:
        return 0, 0
    counted = failure_policy.match(job.pod_failure_policy, replaced).counted
    return replaced.failure_count + counted, replaced.ignored_failure_count + (not counted)
