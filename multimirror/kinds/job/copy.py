"""The copy: from the Job that a user created, the Job that a worker cluster gets.

Gone is what belongs to the original alone: its manager, its suspension, what the server generated for it, its owners
and finalizers, its time to live (a copy that removes itself would be taken for lost), and the notes that deployment
tools keep on objects they applied, which would make the same tool on the worker adopt or prune the copy. Everything
else is what the user meant, and stays. Added are four labels: which management cluster it comes from, which Job, which
attempt at it this is, and what shows that we made it.
"""

from collections.abc import Mapping
from typing import Any, Final

from multimirror.api.names import ATTEMPT_LABEL, ORIGIN_LABEL, ORIGIN_UID_LABEL, OUR_DOMAIN, SIGNATURE_LABEL
from multimirror.batch.labels import (
    CONTROLLER_UID_LABEL,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
)
from multimirror.batch.types import Json, clone
from multimirror.kinds.job.fence import first_deadline
from multimirror.kinds.job.sizes import size_within
from multimirror.kinds.kind import CopyOptions

_NOT_FOR_THE_COPY: Final = ("managedBy", "suspend", "ttlSecondsAfterFinished")
# Where kubectl, Argo CD, Flux, Helm, Rancher Fleet and the inventories of kpt and kubectl note what they applied.
_TRACKING_KEYS: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "applyset.kubernetes.io/part-of",
        "config.k8s.io/owning-inventory",
    }
)
_TRACKING_DOMAINS: Final = (
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "meta.helm.sh/",
    "objectset.rio.cattle.io/",
)


def make_copy(original: Json, options: CopyOptions, *, most: int | None = None) -> Json:
    """The Job to create on a worker, with no more pods at once than `most`."""
    metadata = original["metadata"]
    generated = _generated_labels(original)
    labels = _kept(metadata.get("labels"), generated)
    labels |= {
        ORIGIN_LABEL: options.origin,
        ORIGIN_UID_LABEL: metadata["uid"],
        ATTEMPT_LABEL: str(options.attempt),
        SIGNATURE_LABEL: options.signature,
    }
    annotations = _kept(metadata.get("annotations"), {})
    spec = _copied_spec(original["spec"], generated) | size_within(original["spec"], most)
    deadline = first_deadline(original)
    if deadline is not None:
        spec["activeDeadlineSeconds"] = deadline
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": options.name,
            "namespace": options.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
    }


def _copied_spec(spec: Json, generated: Mapping[str, str]) -> Json:
    copied: Json = {key: value for key, value in clone(spec).items() if key not in _NOT_FOR_THE_COPY}
    if not copied.get("manualSelector"):
        copied.pop("selector", None)
    metadata = copied["template"].get("metadata") or {}
    if "labels" in metadata:
        metadata["labels"] = _without(metadata["labels"], generated)
    return copied


def _generated_labels(original: Json) -> dict[str, str]:
    """The labels that the server made from the original's name and uid; with a manual selector it made none."""
    if original["spec"].get("manualSelector"):
        return {}
    name, uid = original["metadata"]["name"], original["metadata"]["uid"]
    return {
        CONTROLLER_UID_LABEL: uid,
        LEGACY_CONTROLLER_UID_LABEL: uid,
        JOB_NAME_LABEL: name,
        LEGACY_JOB_NAME_LABEL: name,
    }


def _kept(values: Mapping[str, str] | None, generated: Mapping[str, str]) -> dict[str, str]:
    """Labels or annotations that travel: not the generated ones, not a deployment tool's, not ours."""
    return {key: value for key, value in _without(values or {}, generated).items() if not _stays_behind(key)}


def _without(labels: Mapping[str, Any], generated: Mapping[str, str]) -> dict[str, Any]:
    return {key: value for key, value in labels.items() if generated.get(key) != value}


def _stays_behind(key: str) -> bool:
    return key in _TRACKING_KEYS or key.startswith((OUR_DOMAIN, *_TRACKING_DOMAINS))
