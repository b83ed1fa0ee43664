"""The names that multimirror reads and writes on other people's objects: labels, annotations, the manager's name.

Users write the first group, we write the others: on originals, and on copies.
"""

from typing import Final

GROUP: Final = "multimirror.dev"
OUR_DOMAIN: Final = f"{GROUP}/"
VERSION: Final = "v1alpha1"

MANAGED_BY: Final = f"{GROUP}/dispatcher"
"""The value of a Job's spec.managedBy that makes it ours."""

QUEUE_LABEL: Final = f"{GROUP}/queue"
"""On a Job: the MirrorQueue that it waits in."""
DEFAULT_QUEUE_LABEL: Final = f"{GROUP}/default-queue"
"""On a namespace: the MirrorQueue of those of its Jobs that name none."""
PRIORITY_LABEL: Final = f"{GROUP}/priority"
"""On a Job: a whole number; higher goes first. Without it: 0."""
CLUSTERS_ANNOTATION: Final = f"{GROUP}/clusters"
"""On a Job: the only worker clusters that it may go to, separated by commas."""

PREEMPTIBLE_LABEL: Final = f"{GROUP}/preemptible"
"""On a Job, as a label or an annotation: with the value false it is never stopped for others, and placed on what is its
queue's own only. Changed while it runs, it counts from the next time that it is placed."""

HOLD_ANNOTATION: Final = f"{GROUP}/hold"
"""On a Job: with the value true it is not given to a worker cluster until this is removed, or the Job is resumed."""

CLUSTER_ANNOTATION: Final = f"{GROUP}/cluster"
"""On the original, by us: the worker cluster that it was given to."""
ATTEMPT_ANNOTATION: Final = f"{GROUP}/attempt"
"""On the original, by us: how many times it has been given to a worker cluster."""
CLUSTER_NAMESPACE_ANNOTATION: Final = f"{GROUP}/cluster-namespace"
"""On the original, by us: the namespace of its copy on that worker cluster, as it was mapped then."""
FENCE_ANNOTATION: Final = f"{GROUP}/fence"
"""On the original, by us: for how many seconds its copy may run without contact, where the queue has a fence."""
ADMITTED_QUEUE_ANNOTATION: Final = f"{GROUP}/admitted-queue"
"""On the original, by us: the queue that admitted it to its worker, in whose quota it is counted until it ends."""
RESERVED_ANNOTATION: Final = f"{GROUP}/reserved"
"""On the original, by us: what is counted for it (JSON): its pod sets, as they were when it was admitted."""
COPY_UID_ANNOTATION: Final = f"{GROUP}/copy-uid"
"""On the original, by us: the uid of the current attempt's copy, as its worker answered when we made it."""
PREEMPTED_ANNOTATION: Final = f"{GROUP}/preempted"
"""On the original, by us: why it is being taken back: Reclaim, Priority, FairShare, Drain or NotStarted."""
PREEMPTED_BY_ANNOTATION: Final = f"{GROUP}/preempted-by"
"""On the original, by us: the uid of the object that it makes room for (Reclaim, Priority and FairShare only)."""
PREEMPTED_AT_ANNOTATION: Final = f"{GROUP}/preempted-at"
"""On the original, by us: since when it is being taken back, by our own clock."""
PREEMPTIONS_ANNOTATION: Final = f"{GROUP}/preemptions"
"""On the original, by us: how often it was stopped by Reclaim or FairShare. It stays."""
RESUMED_ANNOTATION: Final = f"{GROUP}/resumed"
"""On the original, by us: its user resumed it while it is being taken back: a suspension since then is the user's."""
CLAIM_ANNOTATION: Final = f"{GROUP}/claim"
"""On the original, by us, while it waits: the worker where room is kept for it, and since when."""
STARTING_ANNOTATION: Final = f"{GROUP}/starting"
"""On the original, by us: its queue says how soon its pods have to be ready, and they have not all been ready yet."""
NOT_STARTED_ANNOTATION: Final = f"{GROUP}/not-started"
"""On the original, by us: on which workers its pods were not ready in time, how often and when (JSON)."""
WAITS_FOR_ANNOTATION: Final = f"{GROUP}/waits-for"
"""On an event about a Job that waits, by us: the reason in a word, for a dispatcher that is started again."""
POSITION_ANNOTATION: Final = f"{GROUP}/position"
"""On the original, by us: which place it has in its queue, from 1; of the first ten that have waited for a minute. For
people: nothing is decided on it."""
ESTIMATED_START_ANNOTATION: Final = f"{GROUP}/estimated-start"
"""On the original, by us, beside its position: when it may start, about, as the queue goes on now."""
PLACEMENT_ANNOTATIONS: Final = (
    CLUSTER_ANNOTATION,
    CLUSTER_NAMESPACE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    FENCE_ANNOTATION,
    ADMITTED_QUEUE_ANNOTATION,
    RESERVED_ANNOTATION,
    COPY_UID_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTED_AT_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    RESUMED_ANNOTATION,
    CLAIM_ANNOTATION,
    STARTING_ANNOTATION,
    NOT_STARTED_ANNOTATION,
)
"""The annotations that say where a Job is, or that it has to go. Nobody else writes them (admission/placement.py)."""

ORIGIN_LABEL: Final = f"{OUR_DOMAIN}origin"
"""On a copy, by us: which management cluster it comes from (the uid of its kube-system namespace)."""
ORIGIN_UID_LABEL: Final = f"{OUR_DOMAIN}origin-uid"
"""On a copy, by us: the uid of the object that it is a copy of."""
ATTEMPT_LABEL: Final = f"{OUR_DOMAIN}attempt"
"""On a copy, by us: which attempt at the original it is."""
SIGNATURE_LABEL: Final = f"{OUR_DOMAIN}signature"
"""On a copy, by us: what shows that we made it, there and under that name."""
