"""Whose pods are whose: ownerless pods that match are adopted, own pods that do not match any more are let go."""

from collections.abc import Sequence
from dataclasses import dataclass

from builtin_controller.job import Job
from builtin_controller.pods import Pod
from builtin_controller.templates import controller_reference
from builtin_controller.vocabulary import TRACKING_FINALIZER
from multimirror.batch import Json, selector_matches

REMOVE_FINALIZER: Json = {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}
"""A strategic merge patch that takes the tracking finalizer off and touches no other."""


@dataclass(frozen=True, slots=True)
class Claims:
    """`own` are the Job's pods already."""

    own: Sequence[Pod]
    adopt: Sequence[Pod]
    release: Sequence[Pod]


def claim(job: Job, controlled: Sequence[Pod], ownerless: Sequence[Pod]) -> Claims:
    """Sort the pods that the Job controls and those that nobody does. A Job that is being deleted changes nothing."""
    selector = job.spec.get("selector")
    own: list[Pod] = []
    release: list[Pod] = []
    for pod in controlled:
        (own if selector_matches(selector, pod.metadata.get("labels")) else release).append(pod)
    if job.deleting:
        return Claims(own, (), ())
    adopt = [pod for pod in ownerless if not pod.deleting and selector_matches(selector, pod.metadata.get("labels"))]
    return Claims(own, adopt, release)


def adoption(job: Job, pod: Pod) -> Json:
    """The patch that adopts a pod; its UID in it makes sure that it is this pod and not a namesake."""
    return {
        "metadata": {
            "uid": pod.uid,
            "ownerReferences": [controller_reference(job)],
            "finalizers": [TRACKING_FINALIZER],
        }
    }


def release(job: Job, pod: Pod) -> Json:
    """The patch that lets a pod go."""
    return {
        "metadata": {
            "uid": pod.uid,
            "ownerReferences": [{"$patch": "delete", "uid": job.uid}],
            "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
        }
    }
