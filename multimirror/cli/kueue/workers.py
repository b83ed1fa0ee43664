"""Where the Jobs of a queue may go: the clusters of the MultiKueueConfig behind its AdmissionCheck."""

from typing import Final

from multimirror.cli.kueue.findings import Findings
from multimirror.cli.kueue.names import Names
from multimirror.cli.kueue.objects import ClusterQueue, KueueObjects

_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"


def workers_of(queue: ClusterQueue, kueue: KueueObjects, names: Names, findings: Findings) -> list[str]:
    """The names of WorkerClusters, in Kueue's order; none: all of them."""
    about = f"ClusterQueue {queue.name}"
    found: dict[str, None] = {}
    for check in queue.checks:
        known = kueue.checks.get(check.name)
        where = f"admission check {check.name}"
        if known is None:
            text = "is not among the objects, so its clusters, if it is MultiKueue's, are not known"
            findings.left_out(about, where, text, "read it as well, or set spec.workers")
        elif known.controller != _MULTIKUEUE:
            text = f"there are no checks before a Job is placed ({known.controller})"
            findings.left_out(about, where, text, "check it when the Job is created, or let the Job itself wait")
        elif known.parameters is None or known.parameters not in kueue.configs:
            text = f"MultiKueueConfig {known.parameters} is not among the objects, so its clusters are not known"
            findings.left_out(about, where, text, "read it as well, or set spec.workers")
        else:
            found.update(dict.fromkeys(names[name] for name in kueue.configs[known.parameters].clusters))
        if check.on_flavors:
            findings.changed(about, where, "was for some flavors; here it holds for all Jobs of the queue")
    if not found:
        text = "no clusters are known for it: its Jobs may go to every worker; spec.workers says to which"
        findings.note(about, "spec.workers", text)
    return list(found)
