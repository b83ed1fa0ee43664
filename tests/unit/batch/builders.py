"""Jobs to test with: as a user writes them, and as a server stores them."""

from typing import Any

from clusters.jobapi import prepare_job_create, stored_job
from multimirror.batch import FieldError, Json

UID = "11111111-2222-4333-8444-555555555555"
T0 = "2026-01-01T00:00:00Z"
T1 = "2026-01-01T00:01:00Z"
T2 = "2026-01-01T00:02:00Z"


def a_job(name: str = "train", **spec: Any) -> Json:
    """A Job as a user writes it; `metadata` and `template` may be given whole."""
    metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
    template = spec.pop("template", None) or {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def a_stored_job(name: str = "train", status: Json | None = None, **spec: Any) -> Json:
    """A Job as the server has it after its creation, with this status."""
    job = a_job(name, **spec)
    job["metadata"] |= {"uid": UID, "resourceVersion": "1", "creationTimestamp": T0}
    return {**stored_job(prepare_job_create(job)), "status": status or {}}


def indexed(completions: int = 5, parallelism: int = 2, **spec: Any) -> Json:
    return a_stored_job(completionMode="Indexed", completions=completions, parallelism=parallelism, **spec)


def conditions(*types: str, **others: str) -> list[Json]:
    """True conditions of these types, and others with the status given."""
    wanted = dict.fromkeys(types, "True") | others
    return [{"type": kind, "status": status, "lastTransitionTime": T1} for kind, status in wanted.items()]


def causes(errors: list[FieldError]) -> list[tuple[str, str]]:
    """The errors as (short reason, field), to compare."""
    return [(error.reason.removeprefix("FieldValue"), error.field) for error in errors]
