"""What the server makes of a Job before it judges it."""

from typing import Any

import pytest

from clusters.jobapi import default_job, default_pod, prepare_job_create, prepare_job_update, stored_job
from multimirror.batch import Json
from tests.unit.batch.builders import UID, a_job, a_stored_job

GENERATED = {
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "train",
    "controller-uid": UID,
    "job-name": "train",
}


def created(job: Json) -> Json:
    job["metadata"]["uid"] = UID
    return stored_job(prepare_job_create(job))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"completions": 1, "parallelism": 1, "backoffLimit": 6, "suspend": False, "manualSelector": False}),
        ({"completions": 4}, {"completions": 4, "parallelism": 1}),
        ({"parallelism": 4}, {"completions": None, "parallelism": 4}),
        ({"backoffLimitPerIndex": 1}, {"backoffLimit": 2147483647}),
        ({}, {"podReplacementPolicy": "TerminatingOrFailed", "completionMode": "NonIndexed"}),
        ({"podFailurePolicy": {}}, {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": None}}),
        ({"completions": None, "managedBy": None}, {"completions": 1, "managedBy": None}),
    ],
)
def test_what_is_left_out_is_filled_in(spec: Json, expected: Json) -> None:
    job = created(a_job(**spec))

    assert {key: job["spec"].get(key) for key in expected} == expected


def test_a_job_without_labels_has_its_templates_and_the_generated_ones() -> None:
    job = created(a_job())

    assert job["metadata"]["labels"] == {"app": "x", **GENERATED}
    assert job["spec"]["template"]["metadata"]["labels"] == {"app": "x", **GENERATED}
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}


def test_own_labels_stay_as_they_are() -> None:
    assert created(a_job(metadata={"labels": {"team": "a"}}))["metadata"]["labels"] == {"team": "a"}


def test_a_template_without_labels_gets_the_generated_ones() -> None:
    job = a_job()
    del job["spec"]["template"]["metadata"]

    assert created(job)["metadata"]["labels"] == GENERATED


def test_with_a_manual_selector_nothing_is_generated() -> None:
    job = created(a_job(manualSelector=True, selector={"matchLabels": {"app": "x"}}))

    assert job["metadata"]["labels"] == {"app": "x"}
    assert job["spec"]["selector"] == {"matchLabels": {"app": "x"}}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_an_image_that_may_change_is_pulled_each_time(image: str, policy: str) -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["image"] = image

    assert created(job)["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_what_the_pod_template_gets() -> None:
    job = a_job(
        template={
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": "runner",
                "containers": [
                    {
                        "name": "c",
                        "image": "x:1",
                        "ports": [{"containerPort": 80}],
                        "env": [
                            {"name": "A", "value": ""},
                            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "f"}}},
                        ],
                        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
                        "readinessProbe": {"httpGet": {"port": 80}},
                        "args": [],
                    }
                ],
                "volumes": [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}],
            }
        }
    )

    assert created(job)["spec"]["template"]["spec"] == {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "serviceAccountName": "runner",
        "serviceAccount": "runner",
        "containers": [
            {
                "name": "c",
                "image": "x:1",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [
                    {"name": "A"},
                    {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "f"}}},
                ],
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                "readinessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}}],
    }


def test_a_pod_requests_what_it_is_limited_to() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "requests": {"cpu": "500m"}}}

    spec = default_pod({"spec": {"containers": [container]}})["spec"]

    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert spec["enableServiceLinks"] is True


@pytest.mark.parametrize(
    ("changes", "generation"),
    [
        pytest.param({"suspend": True}, 2, id="a change of the spec counts"),
        pytest.param({}, 1, id="none does not"),
        pytest.param({"podFailurePolicy": None}, 1, id="nor does a null"),
    ],
)
def test_the_generation_counts_changes_of_the_spec(changes: Json, generation: int) -> None:
    old = a_stored_job()
    new = prepare_job_update({**old, "spec": {**old["spec"], **changes}}, old)

    assert new["metadata"]["generation"] == generation


def test_a_field_left_out_of_an_update_gets_its_default_not_its_old_value() -> None:
    old = a_stored_job(backoffLimit=2)
    spec: dict[str, Any] = {key: value for key, value in old["spec"].items() if key != "backoffLimit"}

    assert prepare_job_update({**old, "spec": spec}, old)["spec"]["backoffLimit"] == 6


def test_the_authors_job_is_not_touched() -> None:
    job = a_job(podFailurePolicy={"rules": [{"action": "Count", "onPodConditions": [{"type": "Ready"}]}]})
    before = repr(job)

    default_job(job)

    assert repr(job) == before
