"""What can be set."""

from dataclasses import dataclass, field
from pathlib import Path

from multimirror.api import MANAGED_BY
from multimirror.api.limits import MAX_JOB_BYTES
from multimirror.workers import Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """How the dispatcher works."""

    managed_by: str = MANAGED_BY
    """Jobs whose spec.managedBy says this are ours."""
    namespace: str = "multimirror-system"
    """Our own namespace: the Secrets of WorkerClusters are here."""
    kubeconfig_directory: Path | None = None
    """Where kubeconfigs in files may be; None: nowhere."""
    concurrency: int = 16
    """Jobs of the management cluster that are worked on at once."""
    worker_concurrency: int = 16
    """Calls in flight to each worker."""
    refusal_seconds: float = 300.0
    """How long a worker that refused a Job is not asked again for that Job."""
    max_job_bytes: int = MAX_JOB_BYTES
    """Jobs that are larger are not placed (api/limits.py); admission refuses them."""
    report_seconds: float = 5.0
    """The shortest time between two writes of the same status of ours, unless a condition changes."""
    contact_seconds: float = 60.0
    """How often a WorkerCluster's lastContact is written when nothing else changes."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    plain_http: bool = False
    """Workers without TLS are taken: clusters of simulations, inside this process. No flag sets it."""
