"""The doctor's findings about admission: by reasons and certificates, whatever words an API server uses."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multimirror.admission.certificates import KeyPair, new_authority
from multimirror.admission.copy_labels import WORKER_NAME, copy_labels_policy
from multimirror.admission.deciding import Refusal
from multimirror.admission.placement import guards, placement_policy
from multimirror.admission.registration import Registration, Service
from multimirror.admission.server import _response
from multimirror.api import MANAGED_BY
from multimirror.cli.doctor.admission import check_placement_policy, check_refusal, check_registration
from multimirror.cli.doctor.workers import check_copies_policy
from multimirror.cli.installation.admission_change import failing_open
from multimirror.cli.placement_policy import PolicyState
from multimirror.kube import ApiError
from multimirror.kube.errors import error_from_status

Json = dict[str, Any]
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
REGISTRATION = Registration(service=Service("ours", "multimirror-admission"))


def an_authority(now: datetime = NOW) -> KeyPair:
    return new_authority(now, timedelta(days=365))


def refused(code: int, reason: str, message: str, *, by_us: bool = False) -> ApiError:
    details = _response(Refusal(message))["status"]["details"] if by_us else {}
    status = {"code": code, "reason": reason, "message": message, "details": details}
    return error_from_status(status, cluster="management")


@pytest.mark.parametrize(
    ("error", "check", "level"),
    [
        pytest.param(refused(403, "Forbidden", "no such queue", by_us=True), "Admission", "ok", id="by our webhook"),
        pytest.param(
            refused(403, "Forbidden", "policy: no MirrorQueue for interns"),
            "Admission",
            "warning",
            id="by a policy of somebody else, in our words",
        ),
        pytest.param(
            refused(500, "InternalError", "failed calling webhook: dial tcp: no route to certificate-authority.svc"),
            "Admission",
            "fault",
            id="by nobody: the webhook does not answer, and its name sounds like a certificate",
        ),
    ],
)
def test_who_refused_a_job_is_told_by_the_cause_in_the_answer(error: ApiError, check: str, level: str) -> None:
    found = check_refusal(error, "ours")
    assert (found.check, found.level) == (check, level)
    assert found.remedy or level == "ok"


def test_a_ca_that_did_not_sign_what_the_webhook_shows_is_a_fault() -> None:
    stored, other = an_authority(), an_authority()
    assert check_registration(REGISTRATION.configuration(stored.certificate), stored, "ours", NOW) == []
    (found,) = check_registration(REGISTRATION.configuration(other.certificate), stored, "ours", NOW)
    assert (found.check, found.level, "is not current" in found.message) == ("Certificates", "fault", True)


def test_a_ca_whose_certificates_may_not_be_read_is_not_judged_by_them() -> None:
    assert check_registration(REGISTRATION.configuration(an_authority().certificate), None, "ours", NOW) == []


@pytest.mark.parametrize(("days", "level"), [(300, "warning"), (366, "fault")])
def test_a_ca_that_ends(days: int, level: str) -> None:
    stored = an_authority()
    configuration = REGISTRATION.configuration(stored.certificate)
    (found,) = check_registration(configuration, stored, "ours", NOW + timedelta(days=days))
    assert (found.check, found.level) == ("Certificates", level)


def test_a_webhook_that_is_half_there_and_fails_open() -> None:
    configuration = REGISTRATION.configuration(an_authority().certificate)
    configuration["webhooks"] = [{**configuration["webhooks"][0], "failurePolicy": "Ignore"}]
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(b"none").decode()
    found = check_registration(configuration, None, "ours", NOW)
    assert [(each.level, "fails open" in each.message) for each in found] == [("fault", True), ("fault", False)]


def test_a_webhook_beside_policies_may_fail_open_and_is_half_of_a_change() -> None:
    configuration = failing_open(REGISTRATION.configuration(an_authority().certificate))
    (found,) = check_registration(configuration, None, "ours", NOW, policies=True)
    assert (found.level, "both there" in found.message) == ("warning", True)


def test_somebody_elses_entry_under_our_name_is_a_fault() -> None:
    configuration = REGISTRATION.configuration(an_authority().certificate)
    configuration["webhooks"].append({"name": "all.secrets", "clientConfig": {"url": "https://elsewhere"}})
    found = check_registration({**configuration, "webhooks": configuration["webhooks"][:2]}, None, "ours", NOW)
    assert found == []
    elsewhere = {**configuration["webhooks"][0], "clientConfig": {"service": {"namespace": "theirs", "name": "x"}}}
    (told, *_) = check_registration({"webhooks": [elsewhere, configuration["webhooks"][1]]}, None, "ours", NOW)
    assert (told.check, told.level) == ("Registration", "fault")


def states(**changes: Any) -> list[PolicyState]:
    return [
        PolicyState(document, {**document, "spec": {**document["spec"], **changes, "matchPolicy": "Equivalent"}})
        for document in placement_policy()
    ]


def test_the_placement_policy_is_there_is_another_or_is_not() -> None:
    assert check_placement_policy(states()).level == "ok"
    other = check_placement_policy(states(validationActions=["Audit"]))
    assert (other.level, "spec.validationActions" in other.message) == ("warning", True)
    policy, binding = states()
    gone = check_placement_policy([policy, PolicyState(binding.document, None)])
    assert (gone.level, "ValidatingAdmissionPolicyBinding" in gone.message) == ("fault", True)
    assert "deploy/admission/placement.yaml" in gone.remedy


def test_the_placement_policy_is_one_for_the_dispatchers_name() -> None:
    other = "example.com/ours"
    live = [PolicyState(document, document) for document in guards(other)]
    assert check_placement_policy(live).level == "ok"
    assert check_placement_policy(live, other).level == "ok"
    wrong = check_placement_policy(live, MANAGED_BY)
    assert (wrong.level, other in wrong.message, MANAGED_BY in wrong.remedy) == ("fault", True, True)


def test_a_workers_policy_is_there_is_missing_or_is_in_our_way() -> None:
    states = [PolicyState(document, document) for document in copy_labels_policy(WORKER_NAME)]
    assert check_copies_policy("worker east", "east", states, makes=True).level == "ok"
    assert check_copies_policy("worker east", "east", states, makes=False).level == "fault"
    policy, binding = states
    gone = check_copies_policy("worker east", "east", [policy, PolicyState(binding.document, None)], makes=True)
    assert (gone.level, "ValidatingAdmissionPolicyBinding" in gone.message) == ("warning", True)
    audit = {**binding.document, "spec": {**binding.document["spec"], "validationActions": ["Audit"]}}
    other = check_copies_policy("worker east", "east", [policy, PolicyState(binding.document, audit)], makes=True)
    assert (other.level, "spec.validationActions" in other.message) == ("warning", True)
