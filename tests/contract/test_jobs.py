"""Jobs: what the API fills in, what it refuses and in which words."""

from typing import Any

import pytest

from tests.contract.objects import job, template
from tests.contract.wire import Api, Object


async def test_a_job_gets_its_defaults(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    uid = made["metadata"]["uid"]
    generated = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        "job-name": "a",
    }
    assert made["metadata"]["labels"] == generated
    assert made["spec"] == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        "manualSelector": False,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "managedBy": "example.com/contract",
        "template": {
            "metadata": {"labels": generated},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "example.com/app:1",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "imagePullPolicy": "IfNotPresent",
                    }
                ],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "securityContext": {},
                "schedulerName": "default-scheduler",
            },
        },
    }
    assert made["status"] == {}


async def test_own_labels_are_left_alone(api: Api) -> None:
    made = await api.made("jobs", job("a", metadata={"labels": {"mine": "yes"}}))
    assert made["metadata"]["labels"] == {"mine": "yes"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parallelism": 3}, {"parallelism": 3, "completions": None}),
        ({"completions": 3}, {"parallelism": 1, "completions": 3}),
        (
            {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1},
            {"backoffLimit": 2147483647, "backoffLimitPerIndex": 1},
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}},
            {
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                },
            },
        ),
    ],
    ids=["work queue", "completions only", "back-off per index", "pod failure policy"],
)
async def test_defaults_depend_on_what_was_said(api: Api, spec: Object, expected: Object) -> None:
    made = await api.made("jobs", job("a", **spec))
    assert {key: made["spec"].get(key) for key in expected} == expected


async def test_a_put_that_leaves_a_field_out_gets_its_default_back(api: Api) -> None:
    made = await api.made("jobs", job("a", backoffLimit=2, activeDeadlineSeconds=60))
    for field in ("backoffLimit", "activeDeadlineSeconds"):
        del made["spec"][field]
    put = (await api.put(api.at("jobs", "a"), made)).ok()
    assert put["spec"]["backoffLimit"] == 6
    assert "activeDeadlineSeconds" not in put["spec"]


def restart(policy: str) -> Object:
    return {"template": template(restartPolicy=policy)}


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"parallelism": -1}, ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"]),
        (restart("Always"), ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"']),
        (
            {"managedBy": "plain"},
            ['spec.managedBy: Invalid value: "plain": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        ({"managedBy": ""}, ["spec.managedBy: Required value"]),
        ({"managedBy": "a.io/" + "x" * 59}, ["spec.managedBy: Too long: may not be more than 63 bytes"]),
        (
            {"completionMode": "Sorted"},
            ['spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed"'],
        ),
        (
            {"completionMode": "Indexed", "parallelism": 2},
            ["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            {"backoffLimitPerIndex": 1},
            ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "FailJob"}]}},
            [
                "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is "
                "required"
            ],
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0, 3, 2]}}]
                }
            },
            [
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In "
                "operator",
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [0,3,2]: must be ordered",
            ],
        ),
        (
            {"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [{"succeededIndexes": "0,5"}]}},
            [
                'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0,5": error parsing succeededIndexes: '
                'too large index: "5"'
            ],
        ),
        (
            {"selector": {"matchLabels": {"mine": "x"}}},
            [
                'spec.selector: Invalid value: {"matchLabels":{"batch.kubernetes.io/controller-uid":"UID",'
                '"mine":"x"}}: `selector` not auto-generated',
                'spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/controller-uid":"UID",'
                '"batch.kubernetes.io/job-name":"a","controller-uid":"UID","job-name":"a"}: '
                "`selector` does not match template `labels`",
            ],
        ),
        (
            {"template": template(containers=[])},
            ["spec.template.spec.containers: Required value"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_job_that_breaks_a_rule_is_refused_to_the_letter(api: Api, spec: Object, errors: list[str]) -> None:
    answer = await api.post(api.at("jobs"), job("a", **spec))
    status = answer.refused(422, "Invalid")
    causes = status["details"]["causes"]
    uid = next((each["message"].split('controller-uid":"')[1][:36] for each in causes if "uid" in each["message"]), "")
    errors = [each.replace("UID", uid) for each in errors]
    assert [f"{cause['field']}: {cause['message']}" for cause in causes] == errors
    listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    assert status["message"] == f'Job.batch "a" is invalid: {listed}'
    assert {key: status["details"][key] for key in ("name", "group", "kind")} == {
        "name": "a",
        "group": "batch",
        "kind": "Job",
    }


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"completions": 5}, "spec.completions", "Invalid value: 5: field is immutable"),
        (
            {"managedBy": "example.com/other"},
            "spec.managedBy",
            'Invalid value: "example.com/other": field is immutable',
        ),
        ({"managedBy": None}, "spec.managedBy", "Invalid value: null: field is immutable"),
        ({"completionMode": "Indexed"}, "spec.completionMode", 'Invalid value: "Indexed": field is immutable'),
        ({"template": {"spec": {"restartPolicy": "OnFailure"}}}, "spec.template", "field is immutable"),
    ],
    ids=["completions", "managedBy", "managedBy unset", "completionMode", "template"],
)
async def test_a_change_that_a_job_does_not_take_is_refused(api: Api, change: Object, field: str, message: str) -> None:
    await api.made("jobs", job("a"))
    status = (await api.patch(api.at("jobs", "a"), {"spec": change})).refused(422, "Invalid")
    causes = status["details"]["causes"]
    assert [cause["field"] for cause in causes] == [field]
    assert causes[0]["message"].endswith(message)


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"parallelism": 5},
        {"backoffLimit": 1},
        {"activeDeadlineSeconds": 9},
        {"ttlSecondsAfterFinished": 9},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_change_that_a_job_takes(api: Api, change: dict[str, Any]) -> None:
    await api.made("jobs", job("a"))
    changed = (await api.patch(api.at("jobs", "a"), {"spec": change})).ok()
    assert {key: changed["spec"][key] for key in change} == change
    assert changed["metadata"]["generation"] == 2


async def test_the_scheduling_of_a_suspended_job_that_never_ran_may_change(api: Api) -> None:
    await api.made("jobs", job("a", suspend=True))
    change = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "z1"}}}}}
    changed = (await api.patch(api.at("jobs", "a"), change)).ok()
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "z1"}
    await api.made("jobs", job("b"))
    (await api.patch(api.at("jobs", "b"), change)).refused(422, "Invalid")


async def test_an_elastic_job_changes_both_its_numbers_at_once(api: Api) -> None:
    await api.made("jobs", job("a", completionMode="Indexed", completions=3, parallelism=3))
    path = api.at("jobs", "a")
    changed = (await api.patch(path, {"spec": {"completions": 2, "parallelism": 2}})).ok()
    assert changed["spec"]["completions"] == 2
    status = (await api.patch(path, {"spec": {"completions": 4}})).refused(422, "Invalid")
    assert status["details"]["causes"][0]["message"].endswith("can only be modified in tandem with spec.parallelism")


async def test_a_name_that_makes_bad_pod_names_is_warned_of(api: Api) -> None:
    answer = await api.post(api.at("jobs"), job("with.dots"))
    answer.ok(201)
    assert len(answer.warnings) == 1
    assert answer.warnings[0].startswith(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        "a DNS label is recommended: ["
    )


async def test_more_indexes_than_can_be_tracked_are_warned_of(api: Api) -> None:
    many: Object = {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}
    answer = await api.post(api.at("jobs"), job("a", **many), dryRun="All")
    answer.ok(201)
    assert answer.warnings == [
        "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
        "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    ]


async def test_a_name_too_long_for_a_label_is_refused(api: Api) -> None:
    status = (await api.post(api.at("jobs"), job("x" * 64))).refused(422, "Invalid")
    assert "must be no more than 63 bytes" in status["message"]


async def test_a_manual_selector_is_left_alone(api: Api) -> None:
    body = job("a", manualSelector=True, selector={"matchLabels": {"mine": "x"}})
    body["spec"]["template"]["metadata"] = {"labels": {"mine": "x"}}
    made = await api.made("jobs", body)
    assert made["spec"]["selector"] == {"matchLabels": {"mine": "x"}}
    assert made["spec"]["template"]["metadata"]["labels"] == {"mine": "x"}
    assert made["metadata"]["labels"] == {"mine": "x"}
