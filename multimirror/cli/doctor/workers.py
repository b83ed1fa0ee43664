"""One worker: its WorkerCluster, its credentials, the cluster behind them. All at once.

One whose address is dead costs 3 seconds (ways.py), one that is mute 20.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from multimirror.admission.copy_labels import RESOURCE, VERB, WORKER_NAME
from multimirror.api import CONNECTED, GROUP, ORIGIN_LABEL, READY, SpecError, WorkerClusterSpec
from multimirror.batch import Json, find_condition
from multimirror.cli import credentials
from multimirror.cli.apply import find
from multimirror.cli.copies import by_us
from multimirror.cli.doctor.checks import check_expiry, check_limits, check_skew, check_token, minor
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.cli.doctor.foreign import check_foreign, split_replaced
from multimirror.cli.doctor.jobs import check_copies
from multimirror.cli.doctor.management import ServerInfo, server_info
from multimirror.cli.placement_policy import WORKER_MANIFEST, PolicyState, worker_policy_state
from multimirror.cli.worker_account import limits
from multimirror.cli.workers import CredentialsError, WorkerConnection, stored_connection
from multimirror.kube import ApiError, Client, resources
from multimirror.kube.access import Permission, denied
from multimirror.kube.errors import Forbidden, TimedOut, Unauthorized, Unreachable
from multimirror.kube.resources import JOBS
from multimirror.workers.probe import Facts, check
from multimirror.workers.tokens import ACCOUNT, Slots, claims_of

_TIMEOUT_SECONDS: Final = 20.0
_MOST_MINORS_BEHIND: Final = 4


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What was found, and which cluster it is (None: nobody could tell)."""

    name: str
    findings: list[Finding]
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """The management cluster, as workers are measured by it."""

    client: Client
    system: str
    identity: str
    server: ServerInfo
    namespaces: Sequence[str]
    """Those whose Jobs may want to go to workers."""
    originals: Mapping[str, Json]
    """Our Jobs, by uid."""
    patience: timedelta
    """A copy that nobody starts for so long is left lying."""


async def check_worker(context: CheckContext, cluster: Json) -> WorkerReport:
    name = cluster["metadata"]["name"]
    subject = f"worker {name}"
    try:
        spec = WorkerClusterSpec.read(cluster)
    except SpecError as error:
        return WorkerReport(
            name, [fault("WorkerCluster", subject, str(error), f"`kubectl edit workercluster {name}`.")]
        )
    found = [_condition(subject, cluster, spec)]
    try:
        worker = await stored_connection(context.client, name, spec, context.system)
    except CredentialsError as error:
        told = (warning if error.hidden else fault)("Credentials", subject, error.message, error.remedy)
        return WorkerReport(name, [*found, told])
    claims, slots, now = claims_of(worker.access.token), Slots.of(context.identity, name), datetime.now(UTC)
    found.append(
        check_token(subject, name, claims, slots, now.timestamp())
        or check_expiry(subject, name, credentials.expiry(worker.access), now)
    )
    try:
        async with worker.client(timeout=_TIMEOUT_SECONDS) as client:
            report = await _inside(context, client, worker, found)
            report.findings.append(ok("Reachable", subject, f"it answers here {worker.way}"))
            if claims is not None and claims.account == ACCOUNT:
                report.findings.append(await _limits(client, subject, name, spec))
            return report
    except Unauthorized as error:
        remedy = f"`multimirror join {name} --kubeconfig ... --new-token` makes new ones."
        found.append(fault("Credentials", subject, f"its API server does not accept them: {error.message}", remedy))
    except ApiError as error:
        found.append(check_unreachable(subject, cluster, error))
    return WorkerReport(name, found)


def _condition(subject: str, cluster: Json, spec: WorkerClusterSpec) -> Finding:
    name, conditions = cluster["metadata"]["name"], (cluster.get("status") or {}).get("conditions") or ()
    ready, connected = find_condition(conditions, READY), find_condition(conditions, CONNECTED)
    if ready is None:
        remedy = "Does the dispatcher run? See Dispatcher."
        return fault("WorkerCluster", subject, "no dispatcher has looked at it yet", remedy)
    if ready.get("status") == "True":
        return ok("WorkerCluster", subject, "the dispatcher finds it ready")
    if spec.cordoned and connected is not None and connected.get("status") == "True":
        return warning("WorkerCluster", subject, "it is cordoned", f"`multimirror uncordon {name}`.")
    message = f"the dispatcher finds it not ready: {ready.get('reason')}: {ready.get('message')}"
    return fault("WorkerCluster", subject, message, "See what else is said about it here.")


def check_unreachable(subject: str, cluster: Json, error: ApiError) -> Finding:
    """A fault of the worker's only where the dispatcher does not reach it either."""
    conditions = (cluster.get("status") or {}).get("conditions") or ()
    connected = find_condition(conditions, CONNECTED)
    if not isinstance(error, (Unreachable, TimedOut)):
        remedy = "Does an API server answer there? WorkerCluster says how the dispatcher finds it."
        return fault("Reachable", subject, error.message, remedy)
    if connected is not None and connected.get("status") == "True":
        remedy = "The dispatcher reaches it; ask again from where you do too, to know more."
        return warning("Reachable", subject, f"not checked: {error.message}", remedy)
    either = "" if connected is None else " The dispatcher does not reach it either."
    return fault("Reachable", subject, error.message, f"Is it up?{either}")


async def _inside(
    context: CheckContext, client: Client, worker: WorkerConnection, found: list[Finding]
) -> WorkerReport:
    name, spec = worker.name, worker.spec
    subject = f"worker {name}"
    server = await server_info(client)
    found.append(_version(subject, server.version, context.server.version))
    if server.clock_ahead is not None and context.server.clock_ahead is not None:
        found += check_skew(subject, server.clock_ahead - context.server.clock_ahead, "the management cluster")
    targets = None if spec.namespaces is None else sorted(spec.namespaces.values())
    facts = await check(client, targets)
    found.append(_rights(subject, name, facts))
    found.append(await _copies_policy(client, subject, name))
    found += await _namespaces(client, subject, spec, context.namespaces) if facts.sees_namespaces else []
    if not facts.missing:
        copies: list[Json] = []
        for namespace in targets if targets is not None else [None]:
            copies += (await client.list(JOBS, namespace, label_selector=f"{ORIGIN_LABEL}={context.identity}")).items
        now = datetime.now(UTC) + timedelta(seconds=server.clock_ahead or 0.0)
        foreign: list[Json] = []
        if worker.signer is not None:
            copies, foreign = await by_us(client, copies, worker.signer)
            copies, replaced = split_replaced(copies, context.originals)
            foreign += replaced
        found += check_foreign(subject, foreign, can_tell=worker.signer is not None or not copies)
        found += check_copies(subject, copies, now, context.patience)
    return WorkerReport(name, found, facts.identity)


async def _limits(client: Client, subject: str, name: str, spec: WorkerClusterSpec) -> Finding:
    try:
        states = [PolicyState(document, await find(client, document)) for document in limits()]
    except Forbidden:
        return check_limits(subject, name, None, everywhere=spec.namespaces is None)
    return check_limits(subject, name, states, everywhere=spec.namespaces is None)


async def _copies_policy(client: Client, subject: str, name: str) -> Finding:
    """Are our labels left to our account there?"""
    try:
        states = await worker_policy_state(client)
        makes = not await denied(client, [Permission(VERB, RESOURCE, GROUP)])
    except Forbidden:
        message = "the account may not read the policy multimirror-copies: not checked"
        return warning("Copies", subject, message, f"`multimirror join {name} --kubeconfig ...` grants it.")
    return check_copies_policy(subject, name, states, makes=makes)


def check_copies_policy(subject: str, name: str, states: Sequence[PolicyState], *, makes: bool) -> Finding:
    """Pure. `makes`: the account has the verb that the policy asks for."""
    remedy = f"`multimirror join {name} --kubeconfig ...` puts it in place, or `kubectl apply` {WORKER_MANIFEST} there."
    missing = [state.name for state in states if state.live is None]
    if missing:
        message = f"there is no {', no '.join(missing)}: anybody's Jobs can carry the labels of our copies there"
        return warning("Copies", subject, message, remedy)
    if not makes:
        message = f"the account may not {VERB} {RESOURCE}.{GROUP}, which the policy {WORKER_NAME} there asks for"
        return fault("Copies", subject, message, f"`multimirror join {name} --kubeconfig ...` grants it.")
    differing = [f"{state.name} ({', '.join(state.differing)})" for state in states if state.differing]
    if differing:
        return warning("Copies", subject, f"another version of it is there: {', '.join(differing)}", remedy)
    return ok("Copies", subject, "the labels of copies are left to our account")


def _version(subject: str, version: str, management: str) -> Finding:
    (_, theirs), (_, ours) = minor(version), minor(management)
    if ours - theirs >= _MOST_MINORS_BEHIND:
        message = f"Kubernetes {version}, {ours - theirs} minor versions behind the management cluster's {management}"
        remedy = "Upgrade it: fields of Jobs that it does not know are dropped there."
        return warning("Version", subject, message, remedy)
    return ok("Version", subject, f"Kubernetes {version}")


def _rights(subject: str, name: str, facts: Facts) -> Finding:
    remedy = f"`multimirror join {name} --kubeconfig ...` grants them again."
    if facts.missing:
        return fault("Rights", subject, f"the account may not {', '.join(facts.missing)}", remedy)
    unseen = [what for what, sees in (("namespaces", facts.sees_namespaces), ("nodes", facts.sees_nodes)) if not sees]
    if unseen:
        message = f"the account may not list {' and '.join(unseen)}: room and namespaces there are not known"
        return warning("Rights", subject, message, remedy)
    return ok("Rights", subject, "the account may do what it has to")


async def _namespaces(client: Client, subject: str, spec: WorkerClusterSpec, home: Sequence[str]) -> list[Finding]:
    there = {each["metadata"]["name"] for each in (await client.list(resources.NAMESPACES)).items}
    if spec.namespaces is not None:
        missing = sorted(set(spec.namespaces.values()) - there)
        if missing:
            remedy = "Make it there, or change spec.namespaces of the WorkerCluster."
            message = f"Jobs are to go to namespace {', '.join(missing)}, which it does not have"
            return [fault("Namespaces", subject, message, remedy)]
        return [ok("Namespaces", subject, f"it has all {len(spec.namespaces)} that Jobs go to")]
    missing = sorted(set(home) - there)
    if missing:
        message = f"Jobs of {', '.join(missing)} cannot go there: it has no such namespace"
        return [warning("Namespaces", subject, message, "Make it there, or send its Jobs elsewhere.")]
    return [ok("Namespaces", subject, "it has the namespaces of all Jobs with a queue")]


def same_clusters(examined: Iterable[WorkerReport], home: Mapping[str, str]) -> list[Finding]:
    """Clusters with two names; `home`: identities that are known otherwise."""
    names: dict[str, list[str]] = defaultdict(list)
    for each in examined:
        if each.identity is not None:
            names[each.identity].append(each.name)
    found = []
    for identity, those in names.items():
        if len(those) > 1:
            message = f"{', '.join(sorted(those))} are the same cluster; only one of them is used"
            remedy = f"`multimirror leave {max(those)} --force`, or store the right kubeconfig for it."
            found.append(fault("SameCluster", f"worker {max(those)}", message, remedy))
        elif identity in home:
            message = "it is the management cluster itself: copies get other names there"
            found.append(ok("SameCluster", f"worker {those[0]}", message))
    return found
