"""Our kinds as the controller runtime names kinds. The only place where this package knows of that runtime."""

from typing import Final

from multimirror.api.names import GROUP, VERSION
from multimirror.kube.resource import Resource

WORKER_CLUSTERS: Final = Resource(GROUP, VERSION, "workerclusters", "WorkerCluster", namespaced=False)
MIRROR_QUEUES: Final = Resource(GROUP, VERSION, "mirrorqueues", "MirrorQueue", namespaced=False)
COHORTS: Final = Resource(GROUP, VERSION, "cohorts", "Cohort", namespaced=False)
