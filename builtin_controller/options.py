"""What can be tuned. The defaults are Kubernetes' own constants; its tests, and ours, make them smaller."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from builtin_controller.vocabulary import CONTROLLER_NAME

STALE_CONSISTENCY: Final = "StaleControllerConsistencyJob"
CLEAR_START_TIME: Final = "MutableSchedulingDirectivesForSuspendedJobs"
WORKLOAD_WITH_JOB: Final = "WorkloadWithJob"
GENERIC_WORKLOAD: Final = "GenericWorkload"

GATES: Final[Mapping[str, bool]] = MappingProxyType(
    {STALE_CONSISTENCY: True, CLEAR_START_TIME: True, WORKLOAD_WITH_JOB: False, GENERIC_WORKLOAD: False}
)
"""The gates that change what this controller does, with their defaults at v1.36."""

LOCKED: Final = frozenset({"JobManagedBy", "JobPodReplacementPolicy", "JobSuccessPolicy", "JobBackoffLimitPerIndex"})
"""Gates that v1.36 no longer lets anybody switch off."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the controller works."""

    controller_name: str = CONTROLLER_NAME
    """Whose Jobs are served: those whose managedBy says so; Kubernetes' own name also means those that say nothing."""
    workers: int = 16
    """Kubernetes has 5; here a sync that waits for an answer costs nothing."""
    sync_batch_period: float = 1.0
    """Changes of pods and status wait that long, so that many of them make one sync."""
    api_backoff_base: float = 1.0
    api_backoff_max: float = 60.0
    pod_backoff_base: float = 10.0
    pod_backoff_max: float = 600.0
    max_uncounted_pods: int = 500
    max_pods_per_sync: int = 500
    expectations_lifetime: float = 300.0
    namespace: str | None = None
    """Serve one namespace only; None means all."""
    gates: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("workers", "max_uncounted_pods", "max_pods_per_sync"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is too small; it must be at least 1")
        for name in ("sync_batch_period", "api_backoff_base", "api_backoff_max", "pod_backoff_base", "pod_backoff_max"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative; a duration must not be")
        if self.enabled(WORKLOAD_WITH_JOB) and not self.enabled(GENERIC_WORKLOAD):
            raise ValueError(f"{WORKLOAD_WITH_JOB} needs {GENERIC_WORKLOAD}; switch both on")

    def enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return self.gates.get(gate, GATES[gate])

    @property
    def serves_unnamed(self) -> bool:
        """Whether a Job without managedBy is ours."""
        return self.controller_name == CONTROLLER_NAME

    def foreign(self, managed_by: str | None) -> bool:
        """Whether a Job with this managedBy is somebody else's."""
        if managed_by is None:
            return not self.serves_unnamed
        return managed_by != self.controller_name
