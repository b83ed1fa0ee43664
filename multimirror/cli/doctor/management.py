"""The management cluster: version, kinds, admission, dispatcher, and what the person who asks may see."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from multimirror.admission.registration import covers
from multimirror.api import MANAGED_BY, crds
from multimirror.batch import Json, find_condition
from multimirror.cli.dispatcher_lease import START, dispatcher_status
from multimirror.cli.doctor.admission import check_admission
from multimirror.cli.doctor.checks import check_skew, check_version, skew
from multimirror.cli.doctor.findings import ASK, MANAGEMENT, Finding, Level, fault, ok, unreadable, warning
from multimirror.cli.doctor.jobs import probe_job
from multimirror.kube import ApiError, Client, resources
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.kube.resources import JOBS

_INSTALL: Final = "`multimirror install` brings it up to date."
_LATELY: Final = timedelta(minutes=3)
"""Contacts are written about once a minute."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's version, and how far its clock is ahead of ours (None: it does not tell)."""

    version: str
    clock_ahead: float | None


async def server_info(client: Client) -> ServerInfo:
    """Ask; any account may."""
    before = datetime.now(UTC)
    answer = await client.request("GET", "/version")
    after = datetime.now(UTC)
    told = orjson.loads(answer.body)
    version = str(told.get("gitVersion", "")) if isinstance(told, dict) else ""
    return ServerInfo(version, skew(answer.headers.get("date"), before, after))


async def check_management(client: Client, system: str, server: ServerInfo) -> list[Finding]:
    """Everything but its queues and Jobs."""
    found = [check_version(server.version), *check_skew(MANAGEMENT, server.clock_ahead, "this machine")]
    found += await _kinds(client)
    finding = await check_namespace(client, system, "--system-namespace")
    namespace = "default" if finding.level is Level.FAULT else system
    return [*found, finding, *await _managed_by(client, namespace), *await check_admission(client, namespace, system)]


async def check_dispatcher(client: Client, system: str, clusters: Iterable[Json], now: datetime) -> Finding:
    """Does one run? Without leader election it has no Lease, but it still tells when it last heard of its workers."""
    seen = await dispatcher_status(client, system)
    if seen.alive:
        return ok("Dispatcher", MANAGEMENT, seen.message)
    contacts = [(cluster.get("status") or {}).get("lastContact") for cluster in clusters]
    if not seen.has_lease and any(now - datetime.fromisoformat(each) < _LATELY for each in contacts if each):
        remedy = "One that was started with --no-leader-election has none: make sure that it is the only one."
        return warning("Dispatcher", MANAGEMENT, "one reports about workers, but holds no Lease", remedy)
    return fault("Dispatcher", MANAGEMENT, seen.message, START)


async def _kinds(client: Client) -> list[Finding]:
    found = []
    for wanted in crds():
        name = wanted["metadata"]["name"]
        try:
            live = await client.get(resources.CRDS, name)
        except NotFound:
            found.append(fault("Kinds", MANAGEMENT, f"there is no CustomResourceDefinition {name}", _INSTALL))
            continue
        except Forbidden:
            found.append(unreadable("Kinds", f"CustomResourceDefinition {name}"))
            continue
        established = find_condition((live.get("status") or {}).get("conditions") or (), "Established")
        if established is None or established.get("status") != "True":
            found.append(fault("Kinds", MANAGEMENT, f"{name} is not established", f"`kubectl describe crd {name}`."))
        elif not covers(live["spec"], wanted["spec"]):
            found.append(fault("Kinds", MANAGEMENT, f"{name} is that of another version of multimirror", _INSTALL))
        else:
            found.append(ok("Kinds", MANAGEMENT, f"{name} is current"))
    return found


async def check_namespace(client: Client, name: str, flag: str) -> Finding:
    """Is multimirror's own namespace there? `flag` names another."""
    try:
        await client.get(resources.NAMESPACES, name)
    except NotFound:
        remedy = f"`multimirror install` makes it, or name another with {flag}."
        return fault("Namespace", MANAGEMENT, f"there is no namespace {name}", remedy)
    except Forbidden:
        return unreadable("Namespace", f"namespace {name}")
    return ok("Namespace", MANAGEMENT, f"namespace {name} is there")


async def _managed_by(client: Client, namespace: str) -> list[Finding]:
    """Would the API server keep the field? Old ones drop it without a word."""
    try:
        answer = await client.create(JOBS, probe_job(managedBy=f"{MANAGED_BY}-probe"), namespace, dry_run=True)
    except Forbidden:
        return [warning("ManagedBy", MANAGEMENT, "you may not create Jobs, not even as a dry run: not checked", ASK)]
    except ApiError as error:
        return [warning("ManagedBy", MANAGEMENT, f"a dry run was refused: {error.message}", "See Admission.")]
    if "managedBy" not in answer["spec"]:
        remedy = "Switch the feature gate JobManagedBy on, or upgrade to 1.32 or newer."
        return [fault("ManagedBy", MANAGEMENT, "the API server drops spec.managedBy of Jobs", remedy)]
    return [ok("ManagedBy", MANAGEMENT, "Jobs keep spec.managedBy")]
