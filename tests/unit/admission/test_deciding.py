"""What becomes of a new Job: a table."""

from typing import Any

import pytest

from clusters.embedded.patches import json_patch
from multimirror.admission import Patch, Refusal, decide
from multimirror.admission.deciding import may_be_stale
from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    CLUSTERS_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    PREEMPTED_ANNOTATION,
    PREEMPTIBLE_LABEL,
    PREEMPTIONS_ANNOTATION,
    PRIORITY_LABEL,
    QUEUE_LABEL,
)

Object = dict[str, Any]


def a_job(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Object | None = None,
    **spec: Any,
) -> Object:
    """As the API server shows it: with defaults, and without what nobody gave."""
    metadata: Object = {"name": "j", "namespace": "team-a"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"suspend": False, "parallelism": 1, **spec}}


def queued(name: str = "q", **more: str) -> dict[str, str]:
    return {QUEUE_LABEL: name, **more}


def a_namespace(**labels: str) -> Object:
    return {"metadata": {"name": "team-a", "labels": {"kubernetes.io/metadata.name": "team-a", **labels}}}


PLAIN = a_namespace()
DEFAULTED = a_namespace(**{DEFAULT_QUEUE_LABEL: "q"})
QUEUES: dict[str, Object] = {
    "q": {"metadata": {"name": "q"}, "spec": {}},
    "team-b-only": {"metadata": {"name": "b"}, "spec": {"namespaceSelector": {"matchLabels": {"team": "b"}}}},
    "calm": {"metadata": {"name": "calm"}, "spec": {"maxPriority": 10}},
    "broken": {"metadata": {"name": "broken"}, "spec": {"placement": "Random"}},
}
OURS_WITHOUT_A_QUEUE = (
    "spec.managedBy is multimirror.dev/dispatcher, which places Jobs by queue and quota, and the Job names no queue: "
    "add the label multimirror.dev/queue, or remove spec.managedBy"
)
TAKEN = {"managedBy": MANAGED_BY, "suspend": True, "parallelism": 1}


@pytest.mark.parametrize(
    ("job", "namespace", "labels"),
    [
        pytest.param(a_job(queued()), PLAIN, queued(), id="a Job that names a queue"),
        pytest.param(a_job(queued(), suspend=True), PLAIN, queued(), id="suspended by its user"),
        pytest.param(a_job(queued(), managedBy=MANAGED_BY), PLAIN, queued(), id="names us, too"),
        pytest.param(a_job(queued(**{PRIORITY_LABEL: "7"})), PLAIN, queued(**{PRIORITY_LABEL: "7"}), id="a priority"),
        pytest.param(
            a_job(queued(**{PREEMPTIBLE_LABEL: "false"})),
            PLAIN,
            queued(**{PREEMPTIBLE_LABEL: "false"}),
            id="not to be stopped",
        ),
        pytest.param(a_job(managedBy=MANAGED_BY), DEFAULTED, queued(), id="names us, where there is a default queue"),
        pytest.param(a_job(), DEFAULTED, queued(), id="no labels at all, in a namespace with a default queue"),
        pytest.param(a_job({}), DEFAULTED, queued(), id="an empty map of labels"),
        pytest.param(a_job({"a": "b"}), DEFAULTED, {"a": "b", **queued()}, id="other labels stay"),
        pytest.param(a_job(owner={"kind": "CronJob", "controller": True}), DEFAULTED, queued(), id="made by a CronJob"),
        pytest.param(a_job(owner={"kind": "Release"}), DEFAULTED, queued(), id="owned, but not controlled"),
        pytest.param(a_job(queued("q")), a_namespace(**{DEFAULT_QUEUE_LABEL: "x"}), queued(), id="its own queue wins"),
        pytest.param(
            a_job(queued(), owner={"kind": "JobSet", "controller": True}), PLAIN, queued(), id="a part that says so"
        ),
    ],
)
def test_a_job_becomes_ours(job: Object, namespace: Object, labels: dict[str, str]) -> None:
    verdict = decide(job, namespace, QUEUES)
    assert isinstance(verdict, Patch)
    patched = json_patch(job, list(verdict.operations))
    assert (patched["metadata"]["labels"], patched["spec"]) == (labels, TAKEN)
    assert decide(patched, namespace, QUEUES) is None, "the second time nothing is left to do"


@pytest.mark.parametrize(
    ("job", "held"),
    [
        pytest.param(a_job(queued(), suspend=True), True, id="created suspended"),
        pytest.param(a_job(queued(), suspend=True, annotations={"a": "b"}), True, id="created suspended, annotated"),
        pytest.param(a_job(queued()), False, id="not suspended by its user"),
        pytest.param(a_job(queued(), managedBy=MANAGED_BY, suspend=True), False, id="as we leave a Job"),
        pytest.param(a_job(queued(), annotations={HOLD_ANNOTATION: "true"}), True, id="its user says so"),
    ],
)
def test_a_job_that_its_user_creates_suspended_is_held(job: Object, held: bool) -> None:
    verdict = decide(job, PLAIN, QUEUES)
    patched = json_patch(job, list(verdict.operations)) if isinstance(verdict, Patch) else job
    assert (patched["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION) == ("true" if held else None)
    assert decide(patched, PLAIN, QUEUES) is None, "the second time nothing is left to do"


@pytest.mark.parametrize(
    ("job", "namespace"),
    [
        pytest.param(a_job(), PLAIN, id="no queue, no default"),
        pytest.param(a_job(), a_namespace(**{DEFAULT_QUEUE_LABEL: ""}), id="an empty default is none"),
        pytest.param(a_job(managedBy="example.com/other"), DEFAULTED, id="another manager, no queue"),
        pytest.param(a_job(managedBy="kubernetes.io/job-controller"), DEFAULTED, id="opted out"),
        pytest.param(a_job(owner={"kind": "JobSet", "controller": True}), DEFAULTED, id="a part of something larger"),
        pytest.param(a_job({ORIGIN_LABEL: "here"}), DEFAULTED, id="a copy"),
    ],
)
def test_a_job_is_left_alone(job: Object, namespace: Object) -> None:
    assert decide(job, namespace, QUEUES) is None


@pytest.mark.parametrize(
    ("job", "namespace", "message"),
    [
        pytest.param(
            a_job(queued("nope")),
            PLAIN,
            "there is no MirrorQueue 'nope'; namespace 'team-a' may use calm, q",
            id="no such queue",
        ),
        pytest.param(
            a_job(),
            a_namespace(**{DEFAULT_QUEUE_LABEL: "nope"}),
            "there is no MirrorQueue 'nope'; namespace 'team-a' may use calm, q",
            id="no such default queue",
        ),
        pytest.param(
            a_job(queued("team-b-only")),
            PLAIN,
            "MirrorQueue 'team-b-only' may not be used from namespace 'team-a', whose labels do not match its "
            "spec.namespaceSelector; namespace 'team-a' may use calm, q",
            id="another team's queue",
        ),
        pytest.param(
            a_job(queued("")),
            PLAIN,
            "the label multimirror.dev/queue is empty: name a queue, or remove the label",
            id="an empty label",
        ),
        pytest.param(
            a_job(queued(), managedBy="example.com/other"),
            PLAIN,
            "spec.managedBy is 'example.com/other', but Jobs in a queue are managed by 'multimirror.dev/dispatcher': "
            "remove spec.managedBy (it will be set), or remove the label multimirror.dev/queue",
            id="two managers",
        ),
        pytest.param(
            a_job(queued(), managedBy="kubernetes.io/job-controller"),
            PLAIN,
            "spec.managedBy is 'kubernetes.io/job-controller', but Jobs in a queue are managed by "
            "'multimirror.dev/dispatcher': remove spec.managedBy (it will be set), or remove the label "
            "multimirror.dev/queue",
            id="a queue, and opted out",
        ),
        pytest.param(
            a_job(queued(**{ORIGIN_LABEL: "x"})),
            PLAIN,
            "the label multimirror.dev/origin is kept for copies that multimirror makes: remove it",
            id="dressed up as a copy",
        ),
        pytest.param(a_job(managedBy=MANAGED_BY), PLAIN, OURS_WITHOUT_A_QUEUE, id="names us, but no queue"),
        pytest.param(
            a_job(owner={"kind": "JobSet", "controller": True}, managedBy=MANAGED_BY),
            DEFAULTED,
            OURS_WITHOUT_A_QUEUE,
            id="a part of something larger that names us, but no queue",
        ),
        pytest.param(
            a_job({ORIGIN_LABEL: "x"}, managedBy=MANAGED_BY),
            DEFAULTED,
            OURS_WITHOUT_A_QUEUE,
            id="dressed up as a copy that names us",
        ),
        pytest.param(
            a_job(annotations={"mine": "yes", ATTEMPT_ANNOTATION: "1"}),
            PLAIN,
            f"metadata.annotations[{ATTEMPT_ANNOTATION}] is written by multimirror alone, which places Jobs by queue "
            "and quota: remove it",
            id="placed by its user, and not ours",
        ),
        pytest.param(
            a_job(annotations={CLUSTER_ANNOTATION: "east"}, managedBy="kubernetes.io/job-controller"),
            DEFAULTED,
            f"metadata.annotations[{CLUSTER_ANNOTATION}] is written by multimirror alone, which places Jobs by queue "
            "and quota: remove it",
            id="placed by its user, and opted out",
        ),
        pytest.param(
            a_job(queued("broken")),
            PLAIN,
            "MirrorQueue 'broken' cannot be used until it is put right: spec.placement: must be one of Spread, Pack, "
            "Ordered, Weighted, not 'Random'",
            id="a queue that makes no sense",
        ),
        pytest.param(
            a_job(queued(**{PRIORITY_LABEL: "high"})),
            PLAIN,
            "metadata.labels[multimirror.dev/priority]: must be a whole number from 0 to 999999999, not 'high'",
            id="a priority that is no number",
        ),
        pytest.param(
            a_job(queued(**{PREEMPTIBLE_LABEL: "no"})),
            PLAIN,
            'metadata.labels[multimirror.dev/preemptible]: must be "true" or "false", not \'no\'',
            id="not to be stopped, in other words",
        ),
        pytest.param(
            a_job(queued(), {PREEMPTIBLE_LABEL: "never"}),
            PLAIN,
            'metadata.annotations[multimirror.dev/preemptible]: must be "true" or "false", not \'never\'',
            id="the same as an annotation",
        ),
        pytest.param(
            a_job({QUEUE_LABEL: "calm", PRIORITY_LABEL: "999999999"}),
            PLAIN,
            "the label multimirror.dev/priority is 999999999, and MirrorQueue 'calm' allows up to 10 (maxPriority)",
            id="a priority above the queue's",
        ),
        pytest.param(
            a_job(queued(), {CLUSTERS_ANNOTATION: "east,,west"}),
            PLAIN,
            "metadata.annotations[multimirror.dev/clusters]: must be names of worker clusters separated by commas; "
            "'' is none",
            id="a list of clusters with a hole",
        ),
    ],
)
def test_a_job_is_refused_in_words(job: Object, namespace: Object, message: str) -> None:
    assert decide(job, namespace, QUEUES) == Refusal(message)


def test_only_queues_that_would_do_are_offered_and_not_too_many() -> None:
    def told(queues: dict[str, Object]) -> str:
        verdict = decide(a_job(queued("nope")), PLAIN, queues)
        assert isinstance(verdict, Refusal)
        return verdict.message

    assert told({}).endswith("namespace 'team-a' may use no queue that exists")
    assert told({"b": QUEUES["team-b-only"]}).endswith("may use no queue that exists")
    many: dict[str, Object] = {f"q{number}": {"spec": {}} for number in range(9)}
    assert told(many).endswith("may use q0, q1, q2, q3, q4 and 4 more")


def test_another_jobs_placement_is_forgotten() -> None:
    noted = {CLUSTER_ANNOTATION: "east", ATTEMPT_ANNOTATION: "3", PREEMPTED_ANNOTATION: "Reclaim"}
    noted |= {PREEMPTIONS_ANNOTATION: "0", CLUSTERS_ANNOTATION: "east", "mine": "stays"}
    job = a_job(queued(), noted)
    verdict = decide(job, PLAIN, QUEUES)
    assert isinstance(verdict, Patch)
    annotations = json_patch(job, list(verdict.operations))["metadata"]["annotations"]
    assert annotations == {CLUSTERS_ANNOTATION: "east", "mine": "stays"}


def test_the_manager_can_have_another_name() -> None:
    verdict = decide(a_job(queued()), PLAIN, QUEUES, manager="example.com/ours")
    assert isinstance(verdict, Patch)
    assert {"op": "add", "path": "/spec/managedBy", "value": "example.com/ours"} in verdict.operations
    assert isinstance(decide(a_job(queued(), managedBy=MANAGED_BY), PLAIN, QUEUES, manager="example.com/ours"), Refusal)


@pytest.mark.parametrize(
    ("job", "namespace", "stale"),
    [
        pytest.param(a_job(queued()), PLAIN, False, id="taken"),
        pytest.param(a_job(queued("new")), PLAIN, True, id="the queue may be newer than the cache"),
        pytest.param(a_job(), PLAIN, True, id="why were we asked? the namespace's label may be newer"),
        pytest.param(a_job(managedBy="x/y"), DEFAULTED, False, id="left alone, whatever the queues are"),
        pytest.param(a_job(queued(), managedBy=MANAGED_BY, suspend=True), PLAIN, False, id="nothing left to do"),
    ],
)
def test_a_second_look_is_taken_only_where_it_could_matter(job: Object, namespace: Object, stale: bool) -> None:
    assert may_be_stale(decide(job, namespace, QUEUES), job, namespace) is stale
