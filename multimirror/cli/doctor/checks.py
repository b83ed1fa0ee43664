"""What is wrong with versions, clocks, credentials, queues and namespaces, as they were read. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from multimirror.api import (
    DEFAULT_QUEUE_LABEL,
    READY,
    CohortSpec,
    MirrorQueueSpec,
    SpecError,
    WorkerClusterSpec,
)
from multimirror.api.cohorts import cycle_above
from multimirror.batch import Json, find_condition
from multimirror.cli.doctor.findings import Finding, fault, ok, warning
from multimirror.cli.placement_policy import PolicyState
from multimirror.workers.tokens import Slots, TokenClaims

SKEW_WARNING: Final = 5.0
SKEW_FAULT: Final = 30.0
"""The default grace of a fence, and longer than a lease."""
_EXPIRES_SOON: Final = timedelta(days=14)
_RENEWED_BY: Final = 0.45
"""The dispatcher renews a token when half of its time is left, within minutes."""
MANAGED_BY_SINCE: Final = (1, 32)


def minor(version: str) -> tuple[int, int]:
    """`v1.36.4+x` as (1, 36); (0, 0) if it is none."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_version(version: str) -> Finding:
    if minor(version) < MANAGED_BY_SINCE:
        message = f"Kubernetes {version or 'unknown'}: Jobs have spec.managedBy by default from 1.32 on"
        remedy = "Upgrade it; with 1.30 and 1.31 switch the feature gate JobManagedBy on (API server and controllers)."
        return fault("Version", "management", message, remedy)
    return ok("Version", "management", f"Kubernetes {version}")


def skew(date: str | None, before: datetime, after: datetime) -> float | None:
    """Seconds that a server's clock is ahead of ours, to about a second; None when it does not tell."""
    try:
        told = parsedate_to_datetime(date or "")
    except (TypeError, ValueError):
        return None
    middle = before + (after - before) / 2
    apart = (told - middle).total_seconds() + 0.5  # the header has whole seconds, cut off
    return 0.0 if abs(apart) <= 1 + (after - before).total_seconds() / 2 else apart


def check_skew(subject: str, seconds: float | None, against: str) -> list[Finding]:
    if seconds is None or abs(seconds) < SKEW_WARNING:
        return [] if seconds is None else [ok("Clock", subject, f"its clock and that of {against} agree")]
    ahead = "ahead of" if seconds > 0 else "behind"
    message = f"its clock is {abs(seconds):.0f} s {ahead} that of {against}"
    remedy = "Let both take their time from the same source (NTP): fences, leases and tokens are judged by it."
    return [(fault if abs(seconds) >= SKEW_FAULT else warning)("Clock", subject, message, remedy)]


def check_expiry(subject: str, name: str, end: datetime | None, now: datetime) -> Finding:
    """When a worker's credentials end."""
    remedy = f"`multimirror join {name} --kubeconfig ... --new-token` renews them."
    if end is None:
        return ok("Credentials", subject, "its credentials do not expire")
    if end <= now:
        return fault("Credentials", subject, f"its credentials expired on {end:%Y-%m-%d %H:%M} UTC", remedy)
    if end - now < _EXPIRES_SOON:
        days = max(0, (end - now).days)
        return warning("Credentials", subject, f"its credentials expire in {days} days", remedy)
    return ok("Credentials", subject, f"its credentials are good until {end:%Y-%m-%d}")


def check_token(subject: str, name: str, claims: TokenClaims | None, slots: Slots, now: float) -> Finding | None:
    """Of a token that the dispatcher renews, or that never ends; None: it is neither."""
    remedy = f"`multimirror join {name} --kubeconfig ... --new-token` makes another one, and renewal possible."
    if claims is not None and claims.expires is None:
        message = "its token never ends: whoever gets hold of it has it for good"
        return warning("Credentials", subject, message, remedy)
    if claims is None or claims.expires is None or claims.secret not in slots:
        return None
    end = f"{datetime.fromtimestamp(claims.expires, UTC):%Y-%m-%d %H:%M} UTC"
    if claims.expires <= now:
        return fault("Credentials", subject, f"its token ended at {end}", remedy)
    if claims.expires - now < (claims.expires - claims.issued) * _RENEWED_BY:
        message = f"its token ends at {end}, and was not renewed when half of its time was over"
        return warning("Credentials", subject, message, f"`kubectl describe wc {name}` says why. {remedy}")
    return ok("Credentials", subject, f"its token is good until {end}, and is renewed before")


def check_limits(subject: str, name: str, states: Sequence[PolicyState] | None, *, everywhere: bool) -> Finding:
    """Whether something keeps its account out of kube-* and from tokens that last. `states` None: not to be seen."""
    remedy = (
        f"`multimirror join {name} --kubeconfig ...` puts them in place (Kubernetes 1.30; deploy/worker/account.yaml)."
    )
    if states is None:
        return warning("Account", subject, "the account may not read its own policies: not checked", remedy)
    missing = sorted({each.document["metadata"]["name"] for each in states if each.live is None or each.differing})
    if missing:
        may = "run Jobs in every namespace, kube-system among them" if everywhere else "ask for tokens that last"
        message = f"it has no (or another) policy {', '.join(missing)}: a stolen token could {may}"
        return warning("Account", subject, message, remedy)
    where = "every namespace but kube-* and ours" if everywhere else "the namespaces that it names"
    return ok("Account", subject, f"its account is limited to Jobs in {where}, for a day at a time")


def check_queues(queues: Iterable[Json], clusters: Mapping[str, Json]) -> list[Finding]:
    """Is there a way from each queue to a worker?"""
    found = [_queue(queue, clusters) for queue in queues]
    if not found:
        remedy = "Make a MirrorQueue: `kubectl explain mirrorqueue.spec` describes it."
        return [warning("Queues", "queues", "there is no MirrorQueue: no Job can be sent anywhere", remedy)]
    return found


def _queue(queue: Json, clusters: Mapping[str, Json]) -> Finding:
    name = queue["metadata"]["name"]
    subject = f"queue {name}"
    try:
        spec = MirrorQueueSpec.read(queue)
    except SpecError as error:
        return fault("Queues", subject, str(error), f"`kubectl edit mirrorqueue {name}`.")
    members = [each for each, cluster in clusters.items() if _selected(spec, each, cluster)]
    missing = [each for each in spec.workers.names if each not in clusters]
    if not members:
        named = f": there is no WorkerCluster {', '.join(missing)}" if missing else ""
        remedy = "Join one (`multimirror join`), or change spec.workers; `multimirror get clusters -o wide` has labels."
        return fault("Queues", subject, f"it has no worker clusters{named}", remedy)
    able = [each for each in members if _is_ready(clusters[each])]
    if not able:
        remedy = "`multimirror get clusters` says why; `multimirror uncordon` if they are only cordoned."
        return fault("Queues", subject, f"none of its workers is ready ({', '.join(sorted(members))})", remedy)
    if missing:
        remedy = "Join it, or take its name out of spec.workers.names."
        return warning("Queues", subject, f"it names a WorkerCluster that is not there: {', '.join(missing)}", remedy)
    return ok("Queues", subject, f"{len(able)} of its {len(members)} workers ready")


def check_cohorts(cohorts: Iterable[Json]) -> list[Finding]:
    """Do they make trees? Nothing is said of those that do."""
    specs: dict[str, CohortSpec] = {}
    found = []
    for cohort in cohorts:
        name = cohort["metadata"]["name"]
        try:
            specs[name] = CohortSpec.read(cohort)
        except SpecError as error:
            found.append(
                fault("Queues", f"cohort {name}", str(error), f"`kubectl edit cohort.multimirror.dev {name}`.")
            )
    for name in specs:
        cycle = cycle_above(name, specs)
        if name in cycle:
            message = f"cohorts are in one another: {' in '.join((*cycle, cycle[0]))}"
            remedy = "Change or remove spec.parent of one of them; until then their queues place nothing."
            found.append(fault("Queues", f"cohort {name}", message, remedy))
    return found


def _selected(spec: MirrorQueueSpec, name: str, cluster: Json) -> bool:
    try:
        return spec.workers.include(name, WorkerClusterSpec.read(cluster).labels)
    except SpecError:
        return name in spec.workers.names


def _is_ready(cluster: Json) -> bool:
    ready = find_condition((cluster.get("status") or {}).get("conditions") or (), READY)
    return ready is not None and ready.get("status") == "True"


def check_namespaces(namespaces: Iterable[Json], queues: Iterable[str]) -> list[Finding]:
    """Default queues that are none."""
    known = set(queues)
    found = []
    for namespace in namespaces:
        queue = (namespace["metadata"].get("labels") or {}).get(DEFAULT_QUEUE_LABEL)
        if queue and queue not in known:
            name = namespace["metadata"]["name"]
            message = f"its default queue {queue} does not exist: Jobs cannot be created there"
            remedy = f"Make the MirrorQueue, or `kubectl label namespace {name} {DEFAULT_QUEUE_LABEL}-`."
            found.append(fault("Namespaces", f"namespace {name}", message, remedy))
    return found
