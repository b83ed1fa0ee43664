"""Admission on the management cluster: is it in place, does it answer, and is placement left to the dispatcher?

Judged by what can be read off: the reasons in an answer, and the certificates themselves. The words of an API server
change from release to release; they are passed on to people, and nothing is concluded from them.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509

from multimirror.admission.certificates import KeyPair
from multimirror.admission.registration import Registration, Service, ca_bundle, registered_manager
from multimirror.admission.server import REFUSED
from multimirror.api import MANAGED_BY, QUEUE_LABEL
from multimirror.batch import Json
from multimirror.cli.admission import AUTHORITY, SERVICE
from multimirror.cli.doctor.findings import ASK, MANAGEMENT, Finding, fault, ok, unreadable, warning
from multimirror.cli.doctor.jobs import PROBE, probe_job
from multimirror.cli.placement_policy import (
    MANIFEST,
    PolicyState,
    are_policies_served,
    guarded_manager,
    placement_policy_state,
)
from multimirror.kube import ApiError, Client, resources
from multimirror.kube.errors import BadRequest, Forbidden, Invalid, NotFound
from multimirror.kube.resources import JOBS, MUTATING_WEBHOOKS

_CHECK: Final = "Admission"
_MANAGED_BY: Final = "--managed-by="
_SOON: Final = timedelta(days=90)
_HALF_DONE: Final = (
    "No Job is missed. To finish a change from one to the other, "
    "run `multimirror install` (or `helm upgrade`) once more."
)
_ANEW: Final = "`multimirror install` (or `helm upgrade`) writes the registration anew."


async def check_admission(client: Client, namespace: str, system: str) -> list[Finding]:
    """`namespace`: one in which a Job may be created (as a dry run)."""
    return [*await _check_webhook(client, namespace, system), await _check_placement(client, system)]


async def _check_webhook(client: Client, namespace: str, system: str) -> list[Finding]:
    try:
        webhook: Json | None = await client.get(MUTATING_WEBHOOKS, "multimirror")
    except NotFound:
        webhook = None
    except Forbidden:
        unseen = unreadable(_CHECK, "MutatingWebhookConfiguration multimirror")
        return [unseen, *await _probe(client, namespace, system)]
    policies = await _has_policies(client)
    if webhook is None and not policies:
        remedy = "`multimirror install` puts one of them in place."
        message = "neither webhook nor policies are there: Jobs with a queue would run on this cluster"
        return [fault(_CHECK, MANAGEMENT, message, remedy)]
    found: list[Finding] = []
    if webhook is not None:
        stored = await _stored(client, system)
        found = check_registration(webhook, stored, system, datetime.now(UTC), policies=policies)
    return found + await _probe(client, namespace, system)


async def _has_policies(client: Client) -> bool:
    try:
        listed = await client.list(resources.MUTATING_POLICIES, label_selector="app.kubernetes.io/part-of=multimirror")
    except ApiError:
        return False
    return bool(listed.items)


async def _stored(client: Client, system: str) -> KeyPair | None:
    """The webhook's authority, or its certificate; None where it cannot be read."""
    try:
        return KeyPair.read((await client.get(resources.SECRETS, AUTHORITY, system)).get("data"))
    except (NotFound, Forbidden):
        return None


def check_registration(
    configuration: Json, stored: KeyPair | None, system: str, now: datetime, *, policies: bool = False
) -> list[Finding]:
    """What is wrong with the webhook as it is registered. Pure. `policies`: they are there too, so it may fail open."""
    found: list[Finding] = []
    if policies:
        found.append(warning(_CHECK, MANAGEMENT, "policies and the webhook are both there", _HALF_DONE))
        closed = [{**each, "failurePolicy": "Fail"} for each in configuration.get("webhooks") or ()]
        configuration = {**configuration, "webhooks": closed}
    expected, webhooks = _expected(configuration, system), configuration.get("webhooks") or ()
    for each in expected.foreign(configuration):
        message = f"in MutatingWebhookConfiguration {expected.name}: {each}. Who wrote it sees all that it asks for"
        found.append(fault("Registration", MANAGEMENT, message, f"Find out who wrote it (managedFields); {_ANEW}"))
    found += [fault(_CHECK, MANAGEMENT, f"the webhook {each}", _ANEW) for each in expected.missing(configuration, None)]
    return found + _check_authorities([ca_bundle(each) for each in webhooks], stored, now)


def _expected(configuration: Json, system: str) -> Registration:
    """Ours, by the Service of the installation; or by the URL that is registered, where it runs outside."""
    clients = [each.get("clientConfig") or {} for each in configuration.get("webhooks") or ()]
    url = next((str(client["url"]) for client in clients if "url" in client), None)
    service = Service(system, SERVICE) if url is None else None
    return Registration(service=service, url=url, manager=registered_manager(configuration) or MANAGED_BY)


def _check_authorities(bundles: list[bytes], stored: KeyPair | None, now: datetime) -> list[Finding]:
    renew = f"`multimirror install` makes a new one; with Helm: delete Secret {AUTHORITY}, then `helm upgrade`."
    if stored is not None and not all(stored.is_trusted_by(bundle) for bundle in bundles):
        message = "the webhook's CA is not current: API servers do not trust what the webhook shows"
        return [fault("Certificates", MANAGEMENT, message, _ANEW)]
    ends = [max(each.not_valid_after_utc for each in found) for bundle in bundles if (found := _certificates(bundle))]
    if ends and min(ends) <= now:
        return [fault("Certificates", MANAGEMENT, f"the webhook's CA ended on {min(ends):%Y-%m-%d}", renew)]
    if ends and min(ends) - now < _SOON:
        return [warning("Certificates", MANAGEMENT, f"the webhook's CA ends on {min(ends):%Y-%m-%d}", renew)]
    return []


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []


async def _probe(client: Client, namespace: str, system: str) -> list[Finding]:
    """Would a Job with a queue be made ours? One that does not exist will do: to be refused by us is an answer too."""
    try:
        answer = await client.create(JOBS, probe_job({QUEUE_LABEL: PROBE}), namespace, dry_run=True)
    except ApiError as error:
        return [check_refusal(error, system)]
    if "managedBy" not in answer["spec"]:
        remedy = f"Is it registered for all namespaces? {_ANEW}"
        return [fault(_CHECK, MANAGEMENT, "a Job with a queue would not be made ours", remedy)]
    return [ok(_CHECK, MANAGEMENT, "a Job with a queue would be made ours")]


def check_refusal(error: ApiError, system: str) -> Finding:
    """What it says about the webhook that a Job with a queue was refused. Pure."""
    if any(cause.reason == REFUSED for cause in error.causes):
        return ok(_CHECK, MANAGEMENT, "the webhook answers")
    if isinstance(error, (Forbidden, BadRequest, Invalid)):  # by a right that is missing, or by somebody else's policy
        return warning(_CHECK, MANAGEMENT, f"a dry run was refused: {error.message}", ASK)
    remedy = (
        f"Does Deployment {SERVICE} run, does its Service or URL lead to it, and is its certificate under the CA in "
        f"Secret {system}/{AUTHORITY}? Until then Jobs with a queue are refused."
    )
    return fault(_CHECK, MANAGEMENT, f"the webhook does not answer: {error.message}", remedy)


async def _check_placement(client: Client, system: str) -> Finding:
    try:
        if not await are_policies_served(client):
            message = "this API server has no ValidatingAdmissionPolicies: whoever may write Jobs may place them"
            return warning(
                "Placement",
                MANAGEMENT,
                message,
                "Kubernetes has them since 1.30: is the API switched off (--runtime-config)?",
            )
        return check_placement_policy(await placement_policy_state(client), await _managed_by(client, system))
    except Forbidden:
        return unreadable("Placement", "ValidatingAdmissionPolicies")


async def _managed_by(client: Client, system: str) -> str | None:
    """The name that the dispatcher is told to use; None where it is not one of ours that runs here, or says nothing."""
    try:
        deployment = await client.get(resources.DEPLOYMENTS, "multimirror", system)
    except (NotFound, Forbidden):
        return None
    flags = [
        flag
        for container in deployment["spec"]["template"]["spec"]["containers"]
        for flag in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    return next((flag.removeprefix(_MANAGED_BY) for flag in reversed(flags) if flag.startswith(_MANAGED_BY)), None)


def check_placement_policy(states: list[PolicyState], managed_by: str | None = None) -> Finding:
    """Is placement left to the dispatcher? Pure. `managed_by`: the name in use, where that is known."""
    remedy = f"`multimirror install` puts it in place, or `kubectl apply --server-side -f {MANIFEST}`."
    missing = [state.name for state in states if state.live is None]
    if missing:
        message = f"there is no {', no '.join(missing)}: whoever may write Jobs may send them past queue and quota"
        return fault("Placement", MANAGEMENT, message, remedy)
    differing = [f"{state.name} ({', '.join(state.differing)})" for state in states if state.differing]
    if differing:
        return warning("Placement", MANAGEMENT, f"another version of it is there: {', '.join(differing)}", remedy)
    guarded = guarded_manager(states[0].live)
    if managed_by not in (None, guarded):
        message = f"the policy guards Jobs whose manager is {guarded}, and the dispatcher's is {managed_by}"
        return fault("Placement", MANAGEMENT, message, f"`multimirror install --managed-by {managed_by}`.")
    return ok("Placement", MANAGEMENT, "only the dispatcher says where Jobs run")
