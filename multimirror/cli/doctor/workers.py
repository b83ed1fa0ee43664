"""One worker: its WorkerCluster, its credentials, the cluster behind them. All at once; a dead one costs 10 seconds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from multimirror.api import CONNECTED, ORIGIN_LABEL, READY, SpecError, WorkerClusterSpec
from multimirror.batch import Json, find_condition
from multimirror.cli import credentials
from multimirror.cli.doctor.checks import judge_copies, judge_end, judge_skew, minor
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.cli.doctor.management import Clock, clock_of
from multimirror.kube import ApiError, Client, Connection, resources
from multimirror.kube.errors import ConfigError, Forbidden, NotFound, Unauthorized
from multimirror.kube.kubeconfig import Access, parse_strict
from multimirror.kube.resources import JOBS
from multimirror.workers.probe import Facts, check

_PATIENCE: Final = 10.0
_OLD: Final = 4


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found, and which cluster it is (None: nobody could tell)."""

    name: str
    findings: list[Finding]
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The management cluster, as workers are measured by it."""

    client: Client
    system: str
    identity: str
    clock: Clock
    namespaces: Sequence[str]
    """Those whose Jobs may want to go to workers."""
    patience: timedelta
    """A copy that nobody starts for so long is left lying."""


async def check_worker(home: Home, cluster: Json) -> Examined:
    """Look at one."""
    name = cluster["metadata"]["name"]
    subject = f"worker {name}"
    try:
        spec = WorkerClusterSpec.read(cluster)
    except SpecError as error:
        return Examined(name, [fault("WorkerCluster", subject, str(error), f"`kubectl edit workercluster {name}`.")])
    found = [_as_seen(subject, cluster, spec)]
    access = await _access(home, name, spec)
    if isinstance(access, Finding):
        return Examined(name, [*found, access])
    found.append(judge_end(subject, name, credentials.expiry(access[0]), datetime.now(UTC)))
    try:
        async with Client(access[1], timeout=_PATIENCE, user_agent="multimirror-cli") as client:
            return await _inside(home, client, name, spec, found)
    except Unauthorized as error:
        remedy = f"`multimirror join {name} --kubeconfig ... --new-token` makes new ones."
        found.append(fault("Credentials", subject, f"its API server does not accept them: {error.message}", remedy))
    except ApiError as error:
        remedy = "Is it up, and can it be reached from here? The dispatcher may see it from elsewhere."
        found.append(fault("Reachable", subject, error.message, remedy))
    return Examined(name, found)


def _as_seen(subject: str, cluster: Json, spec: WorkerClusterSpec) -> Finding:
    """What the dispatcher says."""
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


async def _access(home: Home, name: str, spec: WorkerClusterSpec) -> tuple[Access, Connection] | Finding:
    subject = f"worker {name}"
    anew = f"`multimirror join {name} --kubeconfig ...` makes it anew."
    if spec.secret is None:
        return warning("Credentials", subject, "its kubeconfig is a file in the dispatcher's pod: not checked", "")
    where = f"Secret {home.system}/{spec.secret.name}"
    try:
        secret = await home.client.get(resources.SECRETS, spec.secret.name, home.system)
    except NotFound:
        return fault("Credentials", subject, f"there is no {where}", anew)
    except Forbidden:
        remedy = f"Run doctor as somebody who may read Secrets in {home.system} to know more about this worker."
        return warning("Credentials", subject, f"you may not read {where}: the worker is not checked", remedy)
    found = credentials.kubeconfig_in(secret, spec.secret.key)
    if found is None:
        return fault("Credentials", subject, f"{where} has nothing readable under {spec.secret.key!r}", anew)
    try:
        return parse_strict(found), Connection.strict(found, name=name)
    except ConfigError as error:
        return fault("Credentials", subject, f"{where} holds no usable kubeconfig: {error}", anew)


async def _inside(home: Home, client: Client, name: str, spec: WorkerClusterSpec, found: list[Finding]) -> Examined:
    subject = f"worker {name}"
    clock = await clock_of(client)
    found.append(_version(subject, clock.version, home.clock.version))
    if clock.skew is not None and home.clock.skew is not None:
        found += judge_skew(subject, clock.skew - home.clock.skew, "the management cluster")
    targets = None if spec.namespaces is None else sorted(spec.namespaces.values())
    facts = await check(client, targets)
    found.append(_rights(subject, name, facts))
    found += await _namespaces(client, subject, spec, home.namespaces) if facts.sees_namespaces else []
    if not facts.missing:
        copies: list[Json] = []
        for namespace in targets if targets is not None else [None]:
            copies += (await client.list(JOBS, namespace, label_selector=f"{ORIGIN_LABEL}={home.identity}")).items
        now = datetime.now(UTC) + timedelta(seconds=clock.skew or 0.0)
        found += judge_copies(subject, copies, now, home.patience)
    return Examined(name, found, facts.identity)


def _version(subject: str, version: str, management: str) -> Finding:
    (_, theirs), (_, ours) = minor(version), minor(management)
    if ours - theirs >= _OLD:
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


def same_clusters(examined: Iterable[Examined], home: Mapping[str, str]) -> list[Finding]:
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
