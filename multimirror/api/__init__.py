"""Our own API: the kinds WorkerCluster and MirrorQueue, and the labels and annotations of Jobs and namespaces."""

from multimirror.api.crds import crds
from multimirror.api.jobs import allowed_clusters, priority_of, queue_of
from multimirror.api.mirror_queues import (
    Fence,
    LostAction,
    MirrorQueueSpec,
    OnWorkerLost,
    Placement,
    QueueingStrategy,
    QueueWorkers,
    Quota,
)
from multimirror.api.names import (
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    CLUSTERS_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    GROUP,
    HOLD_ANNOTATION,
    LEASE_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PLACEMENT_ANNOTATIONS,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    VERSION,
    WAITS_FOR_ANNOTATION,
)
from multimirror.api.reading import SpecError
from multimirror.api.resources import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.api.worker_clusters import CONNECTED, READY, SecretKey, WorkerClusterSpec

__all__ = [
    "ATTEMPT_ANNOTATION",
    "ATTEMPT_LABEL",
    "CLUSTERS_ANNOTATION",
    "CLUSTER_ANNOTATION",
    "CONNECTED",
    "DEFAULT_QUEUE_LABEL",
    "GROUP",
    "HOLD_ANNOTATION",
    "LEASE_ANNOTATION",
    "MANAGED_BY",
    "MIRROR_QUEUES",
    "ORIGIN_LABEL",
    "ORIGIN_UID_LABEL",
    "PLACEMENT_ANNOTATIONS",
    "PRIORITY_LABEL",
    "QUEUE_LABEL",
    "READY",
    "VERSION",
    "WAITS_FOR_ANNOTATION",
    "WORKER_CLUSTERS",
    "Fence",
    "LostAction",
    "MirrorQueueSpec",
    "OnWorkerLost",
    "Placement",
    "QueueWorkers",
    "QueueingStrategy",
    "Quota",
    "SecretKey",
    "SpecError",
    "WorkerClusterSpec",
    "allowed_clusters",
    "crds",
    "priority_of",
    "queue_of",
]
