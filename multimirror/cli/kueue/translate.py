"""Kueue's objects, translated into MirrorQueues and Cohorts: a pure function.

A ClusterQueue becomes a MirrorQueue, a Cohort a Cohort. LocalQueues become the namespaces that may use a queue, and a
table of labels: Kueue's Jobs name LocalQueues, ours name MirrorQueues. AdmissionChecks of MultiKueue become the workers
of a queue. Nothing is widened or dropped without a word: what has no counterpart, or another meaning, is a finding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from multimirror.api import GROUP, VERSION
from multimirror.batch import Json
from multimirror.cli.kueue.cohorts import tell_cycles, tell_merged_flavors
from multimirror.cli.kueue.findings import Finding, Findings, Outcome
from multimirror.cli.kueue.names import Names, label_of
from multimirror.cli.kueue.objects import ClusterQueue, Cohort, KueueObjects, LocalQueue
from multimirror.cli.kueue.priorities import Priorities, priorities
from multimirror.cli.kueue.quotas import cohort_quota, queue_quota
from multimirror.cli.kueue.selectors import namespace_selector
from multimirror.cli.kueue.workers import workers_of

DEFAULT_QUEUE: Final = "default"
"""A LocalQueue of this name is for the Jobs that name none."""
_HOLDS: Final = {"Hold": "Hold", "HoldAndDrain": "Drain"}


@dataclass(frozen=True, slots=True)
class JobLabel:
    """What the Jobs of a namespace that named a LocalQueue name now."""

    namespace: str
    local_queue: str
    queue: str


@dataclass(frozen=True, slots=True)
class Translation:
    """What is to be applied, what was not taken over, and what Jobs and namespaces need."""

    objects: tuple[Json, ...]
    findings: tuple[Finding, ...]
    labels: tuple[JobLabel, ...]
    priorities: Priorities
    workers: tuple[str, ...]
    """The WorkerClusters that queues name: they have to be joined."""

    @property
    def is_faithful(self) -> bool:
        """Nothing was left out, and nothing means something else."""
        return all(finding.outcome is Outcome.NOTE for finding in self.findings)


def translate(kueue: KueueObjects, *, fair_sharing: bool = False) -> Translation:
    """Ours for Kueue's. `fair_sharing`: Kueue's configuration has it on, for all queues."""
    findings = Findings()
    queues = Names(kueue.cluster_queues, kind="ClusterQueue", dots=True)
    cohorts = Names(_cohort_names(kueue), kind="Cohort", dots=False)
    named = (name for config in kueue.configs.values() for name in config.clusters)
    clusters = Names(named, kind="MultiKueueCluster", dots=True)
    for each in (queues, cohorts, clusters):
        each.tell(findings)
    numbers = priorities(kueue.priority_classes, findings)
    members: list[ClusterQueue | Cohort] = [*kueue.cluster_queues.values(), *kueue.cohorts.values()]
    resources = {quota.resource for member in members for quota in member.quotas}
    translated = [_cohort(cohort, cohorts, findings) for cohort in kueue.cohorts.values()]
    workers: dict[str, None] = {}
    local: dict[str | None, list[LocalQueue]] = {}
    for local_queue in kueue.local_queues:
        local.setdefault(local_queue.cluster_queue, []).append(local_queue)
    for queue in kueue.cluster_queues.values():
        to = workers_of(queue, kueue, clusters, findings)
        workers.update(dict.fromkeys(to))
        spec = {
            **({"cohort": cohorts[queue.cohort]} if queue.cohort is not None else {}),
            **_queue(queue, local.get(queue.name, []), resources, findings, fair_sharing=fair_sharing),
            **({"workers": {"names": to}} if to else {}),
            **({"maxPriority": numbers.highest} if numbers.highest is not None else {}),
        }
        translated.append(_object("MirrorQueue", queues[queue.name], spec))
    tell_cycles(kueue.cohorts, findings)
    tell_merged_flavors(kueue, findings)
    _tell_flavors(kueue, findings)
    if not fair_sharing and any(member.weight is not None for member in members):
        text = "there are some; if Kueue's configuration has fairSharing on, import again with --fair-sharing"
        findings.note("Weights", "", text)
    labels = tuple(_labels(kueue.local_queues, kueue.cluster_queues, queues, findings))
    _tell_others(kueue, findings)
    return Translation(tuple(translated), findings.all(), labels, numbers, tuple(sorted(workers)))


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _cohort_names(kueue: KueueObjects) -> Iterable[str]:
    """Those with an object, and those that are only named."""
    named = [
        *(queue.cohort for queue in kueue.cluster_queues.values()),
        *(cohort.parent for cohort in kueue.cohorts.values()),
    ]
    return [*kueue.cohorts, *(name for name in named if name is not None)]


def _cohort(cohort: Cohort, names: Names, findings: Findings) -> Json:
    about = f"Cohort {cohort.name}"
    quota = cohort_quota(cohort, findings)
    _tell_unknown(about, cohort.unknown, findings)
    spec = {
        **({"parent": names[cohort.parent]} if cohort.parent is not None else {}),
        **_weight(cohort.weight),
        **({"quota": quota} if quota else {}),
    }
    return _object("Cohort", names[cohort.name], spec)


def _queue(
    queue: ClusterQueue,
    local: Sequence[LocalQueue],
    everywhere: Iterable[str],
    findings: Findings,
    *,
    fair_sharing: bool,
) -> Json:
    """The spec, but for the names of others."""
    about = f"ClusterQueue {queue.name}"
    quota = queue_quota(queue, everywhere, findings)
    preempts = _preempts(queue, findings, fair_sharing=fair_sharing)
    _tell_choices(queue, findings)
    _tell_unknown(about, queue.unknown, findings)
    return {
        **_weight(queue.weight if queue.cohort is not None else None),
        "namespaceSelector": namespace_selector(queue, local, findings),
        **({} if queue.queueing_strategy == "BestEffortFIFO" else {"queueingStrategy": queue.queueing_strategy}),
        **({"quota": quota} if quota else {}),
        **({"preempts": preempts} if queue.cohort is not None or preempts else {}),
        **({"hold": _HOLDS[queue.stop_policy]} if queue.stop_policy in _HOLDS else {}),
    }


def _weight(weight: Decimal | None) -> Json:
    if weight is None or weight == 1:
        return {}
    return {"weight": int(weight) if weight == int(weight) else f"{weight.normalize():f}"}


def _preempts(queue: ClusterQueue, findings: Findings, *, fair_sharing: bool) -> list[str]:
    about, found = f"ClusterQueue {queue.name}", []
    if queue.cohort is not None and queue.reclaim != "Never":
        found = ["Reclaim", "FairShare"] if fair_sharing else ["Reclaim"]
        if queue.reclaim == "LowerPriority":
            text = "LowerPriority is taken as Any: own quota is taken back from Jobs of every priority"
            remedy = "take Reclaim out of spec.preempts, or protect Jobs of others for a while with their minRuntime"
            findings.changed(about, "spec.preemption.reclaimWithinCohort", text, remedy)
    if queue.within != "Never":
        found.append("Priority")
        if queue.within == "LowerOrNewerEqualPriority":
            text = "is taken as LowerPriority: newer Jobs of the same priority are not stopped"
            findings.changed(about, "spec.preemption.withinClusterQueue", text, "give older work a higher priority")
    if queue.borrow_within != "Never":
        text = "a Job that has to borrow stops nobody in other queues for its priority"
        remedy = "give the queue more quota of its own, a larger spec.weight, or FairShare in spec.preempts"
        findings.left_out(about, "spec.preemption.borrowWithinCohort", text, remedy)
    return found


def _tell_choices(queue: ClusterQueue, findings: Findings) -> None:
    about = f"ClusterQueue {queue.name}"
    flavors = {quota.flavor for quota in queue.quotas}
    if queue.fungibility and len(flavors) > 1:
        remedy = "spec.placement and spec.workers say which cluster is tried first"
        findings.left_out(
            about, "spec.flavorFungibility", f"{', '.join(queue.fungibility)}: there are no flavors", remedy
        )
    if queue.admission_mode == "UsageBasedAdmissionFairSharing":
        text = "what LocalQueues used before does not count; the namespaces of a queue take turns"
        remedy = "a queue for each team, in a Cohort with halfLife: usageHalfLifeTime of Kueue's configuration"
        findings.left_out(about, "spec.admissionScope", text, remedy)


def _labels(
    local_queues: Sequence[LocalQueue], known: Mapping[str, ClusterQueue], names: Names, findings: Findings
) -> Iterable[JobLabel]:
    for queue in local_queues:
        about = f"LocalQueue {queue.namespace}/{queue.name}"
        _tell_unknown(about, queue.unknown, findings)
        if queue.cluster_queue is None or queue.cluster_queue not in known:
            missing = (
                f"ClusterQueue {queue.cluster_queue} is not among the objects" if queue.cluster_queue else "is empty"
            )
            findings.left_out(
                about, "spec.clusterQueue", missing, "read it as well, or let its Jobs name another queue"
            )
            continue
        if queue.stop_policy != "None":
            text = f"{queue.stop_policy}: a single namespace of a queue cannot be held"
            ours = names[queue.cluster_queue]
            remedy = f"take {queue.namespace} out of spec.namespaceSelector of {ours}, or hold all of it"
            findings.left_out(about, "spec.stopPolicy", text, remedy)
        if queue.weight is not None and queue.weight != 1:
            text = "the namespaces of a queue have no weights, and take turns"
            findings.left_out(
                about, "spec.fairSharing.weight", text, "a queue for each team, in one cohort, with weights"
            )
        yield JobLabel(queue.namespace, queue.name, names[queue.cluster_queue])


def _tell_flavors(kueue: KueueObjects, findings: Findings) -> None:
    used: dict[str, list[str]] = {}
    for queue in kueue.cluster_queues.values():
        for name in dict.fromkeys(quota.flavor for quota in queue.quotas):
            used.setdefault(name, []).append(queue.name)
    for name, queues in sorted(used.items()):
        about, flavor = f"ResourceFlavor {name}", kueue.flavors.get(name)
        if flavor is None:
            findings.note(about, "", "is not among the objects; if it has nodeLabels, Jobs need them as nodeSelector")
            continue
        if flavor.node_labels:
            text = f"{label_of(flavor.node_labels)}: Jobs are not bound to these nodes (queues {', '.join(queues)})"
            remedy = "give the Jobs this nodeSelector, or label WorkerClusters and select them in spec.workers.selector"
            findings.left_out(about, "spec.nodeLabels", text, remedy)
        for path in flavor.others:
            findings.left_out(
                about, path.removeprefix("."), "has no counterpart", "say it in the templates of the Jobs"
            )


def _tell_unknown(about: str, fields: Iterable[str], findings: Findings) -> None:
    for path in fields:
        findings.left_out(
            about, path.removeprefix("."), "is not known here", "see what it does, and whether it is needed"
        )


def _tell_others(kueue: KueueObjects, findings: Findings) -> None:
    for kind, name in kueue.others:
        if kind == "MultiKueueCluster":
            findings.note(
                f"{kind} {name}", "", "its credentials are not read: `multimirror join` makes an account there"
            )
        elif kind != "Workload":  # it is a Job's, and Jobs are not moved
            findings.left_out(f"{kind} {name}", "", "is not translated", "see whether it is still needed")
