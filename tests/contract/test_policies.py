"""Admission policies as objects: kept with their defaults, and refused when they say nothing."""

import secrets
from typing import Any

import pytest

from tests.contract.wire import Api

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
RULE = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
VALID = {"expression": "true"}
MATCH = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}


async def test_a_policy_and_its_binding_are_kept_with_their_defaults(api: Api) -> None:
    name = f"contract-{secrets.token_hex(4)}"
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [VALID]}
    policy = (await api.post(POLICIES, {"metadata": {"name": name}, "spec": spec})).ok(201)
    assert policy["metadata"]["generation"] == 1
    assert policy["spec"] == {
        "failurePolicy": "Fail",
        "matchConstraints": {**MATCH, "resourceRules": [{**RULE, "scope": "*"}]},
        "validations": [VALID],
    }
    body: dict[str, Any] = {"policyName": name, "validationActions": ["Deny"], "matchResources": {}}
    binding = (await api.post(BINDINGS, {"metadata": {"name": name}, "spec": body})).ok(201)
    assert binding["spec"] == {**body, "matchResources": MATCH}
    for path in (BINDINGS, POLICIES):
        (await api.delete(f"{path}/{name}")).ok()


@pytest.mark.parametrize(
    ("path", "spec", "fields"),
    [
        pytest.param(POLICIES, {"validations": [VALID]}, ["spec.matchConstraints"], id="about nothing"),
        pytest.param(
            POLICIES,
            {"matchConstraints": {"resourceRules": [RULE]}},
            ["spec.validations", "spec.auditAnnotations"],
            id="without a rule",
        ),
        pytest.param(BINDINGS, {"validationActions": ["Deny"]}, ["spec.policyName"], id="of no policy"),
        pytest.param(BINDINGS, {"policyName": "x"}, ["spec.validationActions"], id="without an action"),
    ],
)
async def test_one_that_says_nothing_is_refused(api: Api, path: str, spec: dict[str, Any], fields: list[str]) -> None:
    status = (await api.post(path, {"metadata": {"name": "contract-empty"}, "spec": spec})).refused(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == fields
