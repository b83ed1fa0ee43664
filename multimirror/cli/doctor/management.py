"""The management cluster: version, kinds, admission, dispatcher, and what the person who asks may see."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson
from cryptography import x509

from multimirror.admission.registration import DEFAULTED, LABELLED, covers
from multimirror.api import MANAGED_BY, QUEUE_LABEL, crds
from multimirror.batch import Json, find_condition
from multimirror.cli.dispatcher_lease import START, dispatcher_status
from multimirror.cli.doctor.checks import judge_skew, judge_version, skew
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.kube import ApiError, Client, resources
from multimirror.kube.errors import BadRequest, Forbidden, Invalid, NotFound
from multimirror.kube.resources import JOBS, MUTATING_WEBHOOKS

SUBJECT: Final = "management"
_INSTALL: Final = "`multimirror install` brings it up to date."
_SOON: Final = timedelta(days=7)
_LATELY: Final = timedelta(minutes=3)
"""Contacts are written about once a minute."""
_PROBE: Final = "multimirror-doctor"


@dataclass(frozen=True, slots=True)
class Clock:
    """A server's version, and how far its clock is ahead of ours (None: it does not tell)."""

    version: str
    skew: float | None


async def clock_of(client: Client) -> Clock:
    """Ask; any account may."""
    before = datetime.now(UTC)
    answer = await client.request("GET", "/version")
    after = datetime.now(UTC)
    told = orjson.loads(answer.body)
    version = str(told.get("gitVersion", "")) if isinstance(told, dict) else ""
    return Clock(version, skew(answer.headers.get("date"), before, after))


async def check_management(client: Client, system: str, clock: Clock) -> list[Finding]:
    """Everything but its queues and Jobs."""
    found = [judge_version(clock.version), *judge_skew(SUBJECT, clock.skew, "this machine")]
    found += await _kinds(client)
    namespace, finding = await _namespace(client, system)
    found += [finding, *await _managed_by(client, namespace), *await _admission(client, namespace, system)]
    return found


async def check_dispatcher(client: Client, system: str, clusters: Iterable[Json], now: datetime) -> Finding:
    """Does one run? Without leader election it has no Lease, but it still tells when it last heard of its workers."""
    seen = await dispatcher_status(client, system)
    if seen.alive:
        return ok("Dispatcher", SUBJECT, seen.text)
    contacts = [(cluster.get("status") or {}).get("lastContact") for cluster in clusters]
    if not seen.known and any(now - datetime.fromisoformat(each) < _LATELY for each in contacts if each):
        remedy = "One that was started with --no-leader-election has none: make sure that it is the only one."
        return warning("Dispatcher", SUBJECT, "one reports about workers, but holds no Lease", remedy)
    return fault("Dispatcher", SUBJECT, seen.text, START)


async def _kinds(client: Client) -> list[Finding]:
    found = []
    for wanted in crds():
        name = wanted["metadata"]["name"]
        try:
            live = await client.get(resources.CRDS, name)
        except NotFound:
            found.append(fault("Kinds", SUBJECT, f"there is no CustomResourceDefinition {name}", _INSTALL))
            continue
        except Forbidden:
            found.append(_unseen("Kinds", f"CustomResourceDefinition {name}"))
            continue
        established = find_condition((live.get("status") or {}).get("conditions") or (), "Established")
        if established is None or established.get("status") != "True":
            found.append(fault("Kinds", SUBJECT, f"{name} is not established", f"`kubectl describe crd {name}`."))
        elif not covers(live["spec"], wanted["spec"]):
            found.append(fault("Kinds", SUBJECT, f"{name} is that of another version of multimirror", _INSTALL))
        else:
            found.append(ok("Kinds", SUBJECT, f"{name} is current"))
    return found


async def _namespace(client: Client, system: str) -> tuple[str, Finding]:
    try:
        await client.get(resources.NAMESPACES, system)
    except NotFound:
        remedy = "`multimirror install` makes it, or name another with --system-namespace."
        return "default", fault("Namespace", SUBJECT, f"there is no namespace {system}", remedy)
    except Forbidden:
        return system, _unseen("Namespace", f"namespace {system}")
    return system, ok("Namespace", SUBJECT, f"{system} is there")


async def _managed_by(client: Client, namespace: str) -> list[Finding]:
    """Would the API server keep the field? Old ones drop it without a word."""
    try:
        answer = await client.create(JOBS, _probe(managedBy=f"{MANAGED_BY}-probe"), namespace, dry_run=True)
    except Forbidden:
        return [warning("ManagedBy", SUBJECT, "you may not create Jobs, not even as a dry run: not checked", _ASK)]
    except ApiError as error:
        return [warning("ManagedBy", SUBJECT, f"a dry run was refused: {error.message}", "See Admission.")]
    if "managedBy" not in answer["spec"]:
        remedy = "Switch the feature gate JobManagedBy on, or upgrade to 1.32 or newer."
        return [fault("ManagedBy", SUBJECT, "the API server drops spec.managedBy of Jobs", remedy)]
    return [ok("ManagedBy", SUBJECT, "Jobs keep spec.managedBy")]


async def _admission(client: Client, namespace: str, system: str) -> list[Finding]:
    try:
        webhook: Json | None = await client.get(MUTATING_WEBHOOKS, "multimirror")
    except NotFound:
        webhook = None
    except Forbidden:
        return [
            _unseen("Admission", "MutatingWebhookConfiguration multimirror"),
            *await _probed(client, namespace, system),
        ]
    if webhook is None and not await _policies(client):
        remedy = (
            "Start the dispatcher with --admission-service or --admission-url, or apply deploy/admission/policies.yaml."
        )
        message = "neither webhook nor policies are there: Jobs with a queue would run on this cluster"
        return [fault("Admission", SUBJECT, message, remedy)]
    found = _webhook(webhook, system) if webhook is not None else []
    return found + await _probed(client, namespace, system)


async def _policies(client: Client) -> bool:
    try:
        listed = await client.list(resources.MUTATING_POLICIES, label_selector="app.kubernetes.io/part-of=multimirror")
    except ApiError:
        return False
    return bool(listed.items)


def _webhook(configuration: Json, system: str) -> list[Finding]:
    found: list[Finding] = []
    webhooks = {each["name"]: each for each in configuration.get("webhooks") or ()}
    missing = [name for name in (LABELLED, DEFAULTED) if name not in webhooks]
    remedy = "Delete the MutatingWebhookConfiguration multimirror: the dispatcher makes it anew."
    if missing:
        found.append(fault("Admission", SUBJECT, f"the webhook {', '.join(missing)} is not registered", remedy))
    if any(each.get("failurePolicy") == "Ignore" for each in webhooks.values()):
        message = "the webhook fails open: while it does not answer, Jobs with a queue run on this cluster"
        found.append(warning("Admission", SUBJECT, message, remedy))
    ends = [end for each in webhooks.values() if (end := _authority_ends(each)) is not None]
    renew = f"Delete Secret {system}/multimirror-admission: the dispatcher makes new certificates."
    now = datetime.now(UTC)
    if ends and min(ends) <= now:
        found.append(fault("Certificates", SUBJECT, f"the webhook's CA ended on {min(ends):%Y-%m-%d}", renew))
    elif ends and min(ends) - now < _SOON:
        message = f"the webhook's CA ends on {min(ends):%Y-%m-%d}, and was not renewed"
        found.append(warning("Certificates", SUBJECT, message, f"Does the dispatcher run? {renew}"))
    return found


def _authority_ends(webhook: Json) -> datetime | None:
    """When the last of its authorities ends."""
    bundle = (webhook.get("clientConfig") or {}).get("caBundle")
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle or ""))
    except (ValueError, binascii.Error):
        return None
    return max(each.not_valid_after_utc for each in authorities)


async def _probed(client: Client, namespace: str, system: str) -> list[Finding]:
    """Would a Job with a queue be made ours? One that does not exist will do: to be refused by us is an answer too."""
    try:
        answer = await client.create(JOBS, _probe({QUEUE_LABEL: _PROBE}), namespace, dry_run=True)
    except (Forbidden, BadRequest, Invalid) as error:
        if "MirrorQueue" in error.message:
            return [ok("Admission", SUBJECT, "the webhook answers")]
        if isinstance(error, Forbidden):
            return [warning("Admission", SUBJECT, f"a dry run was refused: {error.message}", _ASK)]
        return [warning("Admission", SUBJECT, f"a dry run was refused: {error.message}", "")]
    except ApiError as error:
        if "x509" in error.message or "certificate" in error.message.lower():
            remedy = (
                "Delete the MutatingWebhookConfiguration multimirror: the dispatcher registers it anew, with its own "
                f"CA; if that does not help, also Secret {system}/multimirror-admission."
            )
            return [fault("Certificates", SUBJECT, f"the webhook's CA is not current: {error.message}", remedy)]
        remedy = (
            "Does the dispatcher run, and does its Service or URL lead to it? Until then Jobs with a queue are refused."
        )
        return [fault("Admission", SUBJECT, f"the webhook does not answer: {error.message}", remedy)]
    if "managedBy" not in answer["spec"]:
        remedy = "Is it registered for all namespaces? Delete its configuration: the dispatcher makes it anew."
        return [fault("Admission", SUBJECT, "a Job with a queue would not be made ours", remedy)]
    return [ok("Admission", SUBJECT, "a Job with a queue would be made ours")]


_ASK: Final = "Run doctor as somebody with more rights to know."


def _unseen(check: str, what: str) -> Finding:
    return warning(check, SUBJECT, f"you may not read {what}: not checked", _ASK)


def _probe(labels: dict[str, str] | None = None, **spec: str) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}
    return {
        "metadata": {"generateName": f"{_PROBE}-", "labels": labels or {}},
        "spec": {**spec, "suspend": True, "template": {"spec": pod}},
    }
