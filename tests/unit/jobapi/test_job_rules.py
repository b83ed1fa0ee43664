"""The rules of creating and updating a Job that the recorded answers do not show."""

import copy
from typing import Any

import pytest

from clusters.jobapi import prepare_job_create, prepare_job_update, validate_job_create, validate_job_update
from multimirror.batch import Json
from tests.unit.batch.builders import T0, UID, a_job, a_stored_job, causes, conditions, indexed

Causes = list[tuple[str, str]]


def create(job: Json) -> Causes:
    job["metadata"].setdefault("uid", UID)
    return causes(validate_job_create(prepare_job_create(job)))


def template(**changes: Any) -> Json:
    container = {"name": "c", "image": "x:1"} | changes.pop("container", {})
    spec = {"restartPolicy": "Never", "containers": [container]} | changes
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


EXIT_CODES = {"operator": "In", "values": [1]}
SUCCESS_INDEXES = "spec.successPolicy.rules[0].succeededIndexes"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(a_job(), [], id="an ordinary Job"),
        pytest.param(
            a_job(managedBy=f"{'a' * 254}/x"),
            [("Invalid", "spec.managedBy"), ("TooLong", "spec.managedBy")],
            id="a manager whose domain is too long",
        ),
        pytest.param(a_job(managedBy=f"a.io/{'x' * 58}"), [], id="a manager of 63 bytes"),
        pytest.param(a_job(managedBy=f"a.io/{'x' * 59}"), [("TooLong", "spec.managedBy")], id="a manager of 64 bytes"),
        pytest.param(a_job(managedBy="a.io/x\n"), [("Invalid", "spec.managedBy")], id="a manager with a line end"),
        pytest.param(
            a_job(podFailurePolicy={"rules": [{"onExitCodes": EXIT_CODES}]}),
            [("Required", "spec.podFailurePolicy.rules[0].action")],
            id="a failure rule without an action",
        ),
        pytest.param(
            a_job(podFailurePolicy={"rules": [{"action": "Count", "onExitCodes": {"values": [1]}}]}),
            [("Required", "spec.podFailurePolicy.rules[0].onExitCodes.operator")],
            id="exit codes without an operator",
        ),
        pytest.param(
            a_job(podFailurePolicy={"rules": [{"action": "Count", "onPodConditions": [{"type": "Ready"}] * 21}]}),
            [("TooMany", "spec.podFailurePolicy.rules[0].onPodConditions")],
            id="too many pod conditions",
        ),
        pytest.param(a_job(podFailurePolicy={"rules": []}), [], id="a failure policy without rules"),
        pytest.param(
            a_job(
                podFailurePolicy={
                    "rules": [{"action": "Count", "onExitCodes": EXIT_CODES | {"containerName": "init"}}]
                },
                template=template(initContainers=[{"name": "init", "image": "x:1"}]),
            ),
            [],
            id="exit codes of an init container",
        ),
        pytest.param(
            a_job(
                completionMode="Indexed",
                completions=3,
                successPolicy={"rules": [{"succeededIndexes": ",".join(["0"] * 40_000)}]},
            ),
            [("TooLong", SUCCESS_INDEXES), ("Invalid", SUCCESS_INDEXES)],
            id="success indexes of too many bytes",
        ),
        pytest.param(
            a_job(
                completionMode="Indexed",
                completions=100_001,
                parallelism=1,
                backoffLimitPerIndex=1,
                maxFailedIndexes=10_001,
            ),
            [("Invalid", "spec.maxFailedIndexes")],
            id="too many failed indexes for a large Job",
        ),
        pytest.param(
            a_job(template=template(container={"name": ""})),
            [("Required", "spec.template.spec.containers[0].name")],
            id="a container without a name",
        ),
        pytest.param(
            a_job(template=template(initContainers=[{"name": "c", "image": "x:1"}])),
            [("Duplicate", "spec.template.spec.initContainers[0].name")],
            id="an init container named like another",
        ),
        pytest.param(
            a_job(template=template(container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}})),
            [("Invalid", "spec.template.spec.containers[0].resources.requests")],
            id="more requested than the limit",
        ),
        pytest.param(
            a_job(template=template(container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            [("NotFound", "spec.template.spec.containers[0].volumeMounts[0].name")],
            id="a mount of no volume",
        ),
        pytest.param(
            a_job("Upper"),
            [("Invalid", "metadata.name")],
            id="a name that is no DNS name",
        ),
        pytest.param(
            a_job("n" * 64),
            [("Invalid", "metadata.labels")] * 2 + [("Invalid", "spec.template.labels")] * 2,
            id="a name too long for the label that is made of it",
        ),
        pytest.param(
            a_job("n" * 62, completionMode="Indexed", completions=1),
            [("Invalid", "metadata.name")],
            id="no room for the index in the hostname",
        ),
        pytest.param(a_job("a.b", completionMode="Indexed", completions=1), [("Invalid", "metadata.name")], id="a dot"),
        pytest.param(a_job("a.b"), [], id="a dot without indexes"),
        pytest.param(
            a_job(template={**template(), "metadata": {"labels": {"job-name": "other"}}}),
            [("Invalid", "spec.template.metadata.labels[job-name]")],
            id="a generated label taken",
        ),
        pytest.param(
            a_job(manualSelector=True),
            [("Required", "spec.selector"), ("Invalid", "spec.template.metadata.labels")],
            id="a manual selector forgotten",
        ),
        pytest.param(a_job(manualSelector=True, selector={"matchLabels": {"app": "x"}}), [], id="a manual selector"),
        pytest.param(
            a_job(manualSelector=True, selector={"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "app"}]}),
            [("Invalid", "spec.selector.matchExpressions[0].operator")],
            id="a selector with no operator",
        ),
        pytest.param(
            a_job(metadata={"labels": {"a": "no blanks"}, "annotations": {"a b": ""}, "finalizers": ["mine"]}),
            [
                ("Invalid", "metadata.labels"),
                ("Invalid", "metadata.annotations"),
                ("Invalid", "metadata.finalizers[0]"),
            ],
            id="labels, annotations and finalizers in the wrong form",
        ),
    ],
)
def test_creating(job: Json, expected: Causes) -> None:
    assert create(job) == expected


def update(old: Json, **changes: Any) -> Causes:
    new = copy.deepcopy(old)
    new["spec"] |= changes
    return causes(validate_job_update(prepare_job_update(new, old), old))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("selector", {"matchLabels": {"app": "x"}}),
        ("completionMode", "NonIndexed"),
        ("podFailurePolicy", {"rules": []}),
        ("backoffLimitPerIndex", None),
        ("managedBy", "acme.io/other"),
        ("successPolicy", {"rules": [{"succeededCount": 1}]}),
    ],
)
def test_what_may_never_change(field: str, value: Any) -> None:
    old = indexed(backoffLimitPerIndex=1)

    assert ("Invalid", f"spec.{field}") in update(old, **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parallelism", 9),
        ("activeDeadlineSeconds", 5),
        ("backoffLimit", 0),
        ("ttlSecondsAfterFinished", 0),
        ("suspend", True),
        ("podReplacementPolicy", "Failed"),
    ],
)
def test_what_may_change_even_on_a_finished_job(field: str, value: Any) -> None:
    finished = {"startTime": T0, "conditions": conditions("FailureTarget", "Failed")}

    assert update(a_stored_job(status=finished), **{field: value}) == []


@pytest.mark.parametrize(
    ("old", "changes", "expected"),
    [
        pytest.param(a_stored_job(), {"completions": 3}, ["spec.completions"], id="NonIndexed: fixed"),
        pytest.param(indexed(3, 3), {"completions": 5, "parallelism": 5}, [], id="Indexed: together with parallelism"),
        pytest.param(indexed(3, 3), {"completions": 5}, ["spec.completions"], id="Indexed: not alone"),
        pytest.param(indexed(3, 3), {"parallelism": 1}, [], id="parallelism alone"),
    ],
)
def test_the_size_of_a_job(old: Json, changes: Json, expected: list[str]) -> None:
    assert [field for _, field in update(old, **changes)] == expected


SAFE = a_stored_job(suspend=True)
STILL_ACTIVE = a_stored_job(suspend=True, status={"active": 1})
STARTED = a_stored_job(suspend=True, status={"startTime": T0})
SUSPENDED_AGAIN = a_stored_job(suspend=True, status={"startTime": T0, "conditions": conditions("Suspended")})
RUNNING = a_stored_job()


def edited(job: Json, **changes: Any) -> Json:
    edited: Json = copy.deepcopy(job["spec"]["template"])
    edited["spec"] |= changes
    return edited


def with_container(job: Json, **changes: Any) -> Json:
    result = edited(job)
    result["spec"]["containers"][0] |= changes
    return result


NODE_AFFINITY: Json = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
RESOURCES = {"requests": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("old", "template", "expected"),
    [
        pytest.param(RUNNING, edited(RUNNING, nodeSelector={"a": "b"}), ["spec.template"], id="running: nothing"),
        pytest.param(SAFE, edited(SAFE, nodeSelector={"a": "b"}), [], id="suspended: node selector"),
        pytest.param(SAFE, edited(SAFE, tolerations=[{"operator": "Exists"}]), [], id="suspended: tolerations"),
        pytest.param(SAFE, edited(SAFE, affinity=NODE_AFFINITY), [], id="suspended: node affinity"),
        pytest.param(
            SAFE, edited(SAFE, affinity={"podAffinity": {}}), ["spec.template.spec"], id="suspended: not pod affinity"
        ),
        pytest.param(SAFE, with_container(SAFE, resources=RESOURCES), [], id="suspended: resources"),
        pytest.param(SAFE, with_container(SAFE, image="y:1"), ["spec.template.spec"], id="suspended: not the image"),
        pytest.param(STILL_ACTIVE, edited(SAFE, nodeSelector={"a": "b"}), ["spec.template"], id="pods still there"),
        pytest.param(STARTED, edited(SAFE, nodeSelector={"a": "b"}), ["spec.template"], id="not yet said Suspended"),
        pytest.param(SUSPENDED_AGAIN, edited(SAFE, nodeSelector={"a": "b"}), [], id="suspended once more"),
        pytest.param(RUNNING, edited(RUNNING, tolerations=[]), [], id="an empty list is none"),
        pytest.param(RUNNING, edited(RUNNING, affinity={}), ["spec.template"], id="but an empty affinity is not none"),
    ],
)
def test_editing_the_template(old: Json, template: Json, expected: list[str]) -> None:
    assert [field for _, field in update(old, template=template)] == expected


def test_a_quantity_may_be_spelled_another_way() -> None:
    old = a_stored_job(template=template(container={"resources": {"requests": {"cpu": "1"}}}))

    assert update(old, template=with_container(old, resources={"requests": {"cpu": "1000m"}})) == []


def test_a_write_that_edits_the_template_may_resume_the_job() -> None:
    assert update(SAFE, template=edited(SAFE, nodeSelector={"a": "b"}), suspend=False) == []


def test_rules_of_the_spec_are_said_twice_on_update_and_immutability_once() -> None:
    old = a_stored_job()

    assert update(old, parallelism=-1, completions=7) == [
        ("Invalid", "spec.parallelism"),
        ("Invalid", "spec.parallelism"),
        ("Invalid", "spec.completions"),
    ]


def test_labels_of_older_servers_are_not_demanded_on_update() -> None:
    old = a_stored_job()
    for key in ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"):
        del old["spec"]["template"]["metadata"]["labels"][key]
    old["spec"]["selector"] = {"matchLabels": {"controller-uid": UID}}

    assert update(old, suspend=True) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "other"), ("namespace", "other"), ("uid", "other"), ("creationTimestamp", "2026-02-02T00:00:00Z")],
)
def test_the_identity_of_an_object_is_fixed(field: str, value: str) -> None:
    old = a_stored_job()
    new = prepare_job_update({**old, "metadata": {**old["metadata"], field: value}}, old)

    assert ("Invalid", f"metadata.{field}") in causes(validate_job_update(new, old))


def test_no_finalizer_can_be_added_to_what_is_being_deleted() -> None:
    old = a_stored_job(metadata={"finalizers": ["a.io/x"], "deletionTimestamp": T0})
    new = prepare_job_update({**old, "metadata": {**old["metadata"], "finalizers": ["a.io/x", "a.io/y"]}}, old)

    errors = validate_job_update(new, old)

    assert causes(errors) == [("Forbidden", "metadata.finalizers")]
    assert errors[0].message.endswith('found new finalizers []string{"a.io/y"}')
