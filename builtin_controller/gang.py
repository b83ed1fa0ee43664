"""Gang scheduling (KEP-5547): which Jobs get a Workload and a PodGroup, how these look, and which are ours to use.

Found by reference, not by name. Whatever is not exactly what this controller makes (somebody else's, more than one,
another shape) means plain scheduling for this Job, silently; nothing is ever repaired or deleted here.
"""

from collections.abc import Sequence
from typing import Final

from builtin_controller.job import Job
from builtin_controller.pods import controller_of
from builtin_controller.templates import controller_reference
from multimirror.batch import Json
from multimirror.batch.conditions import SUSPENDED

GROUP: Final = "scheduling.k8s.io"
VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
_LONGEST_NAME: Final = 253
_SAFE_DIGITS: Final = str.maketrans("0123456789", "456789bcdf")


def qualifies(job: Job) -> bool:
    """All pods at once, or none: Indexed, more than one, all in parallel, and not opted out."""
    opted_out = (job.template.get("spec") or {}).get("schedulingGroup") is not None
    return job.indexed and job.parallelism > 1 and job.completions == job.parallelism and not opted_out


def is_new(job: Job, pods: int) -> bool:
    """It never ran: a Job from before the feature was switched on is left as it is."""
    status = job.status
    if pods or status.get("startTime") is not None or status.get("succeeded") or status.get("failed"):
        return False
    return job.condition(SUSPENDED) is None


def owned(obj: Json, job: Job) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference.get("uid") == job.uid


def usable_workload(job: Job, found: Sequence[Json]) -> Json | None:
    """The one Workload that is this Job's and has the shape that we know."""
    if len(found) != 1 or not owned(found[0], job):
        return None
    return found[0] if len(found[0].get("spec", {}).get("podGroupTemplates") or ()) == 1 else None


def usable_pod_group(job: Job, found: Sequence[Json]) -> Json | None:
    return found[0] if len(found) == 1 and owned(found[0], job) else None


def workload_of(job: Job) -> Json:
    """The Workload to create for a Job."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(job.name, job.uid),
            "namespace": job.namespace,
            "ownerReferences": [controller_reference(job)],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": job.name},
            "podGroupTemplates": [
                {"name": f"{job.name}-pgt-0", "schedulingPolicy": {"gang": {"minCount": job.parallelism}}}
            ],
        },
    }


def pod_group_of(job: Job, workload: Json) -> Json:
    """The PodGroup to create for a Workload."""
    name, template = workload["metadata"]["name"], workload["spec"]["podGroupTemplates"][0]
    reference = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "name": name,
        "uid": workload["metadata"]["uid"],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(name, template["name"]),
            "namespace": job.namespace,
            "ownerReferences": [controller_reference(job), reference],
        },
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": template["name"]}},
            "schedulingPolicy": template["schedulingPolicy"],
        },
    }


def workload_name(job: str, uid: str) -> str:
    """Stable, and unlike that of another Job of the same name."""
    suffix = _hash(f"(types.UID){uid}")
    return f"{job[: _LONGEST_NAME - len(suffix) - 1]}-{suffix}"


def pod_group_name(workload: str, template: str) -> str:
    suffix = _hash(workload + template)
    room = _LONGEST_NAME - len(suffix) - 2
    if len(workload) + len(template) > room:
        half = room // 2
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{suffix}"


def job_of_workload(workload: Json) -> list[str]:
    """Index: the key of the Job that a Workload says it is for."""
    reference = (workload.get("spec") or {}).get("controllerRef") or {}
    if reference.get("apiGroup") != "batch" or reference.get("kind") != "Job" or not reference.get("name"):
        return []
    return [f"{workload['metadata'].get('namespace')}/{reference['name']}"]


def workload_of_pod_group(pod_group: Json) -> list[str]:
    """Index: the key of the Workload that a PodGroup was made from."""
    reference = ((pod_group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload") or {}
    name = reference.get("workloadName")
    return [f"{pod_group['metadata'].get('namespace')}/{name}"] if name else []


def _hash(text: str) -> str:
    """FNV-1a, 32 bits, in decimal, with digits that spell no words."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return str(value).translate(_SAFE_DIGITS)
