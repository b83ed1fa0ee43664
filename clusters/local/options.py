"""What a local fleet understands beyond what every fleet does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusters.fleet import FleetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(FleetOptions):
    version: str | None = None
    """`1.36.4` or `1.36`; None: whatever suitable binaries are found."""
    controllers: Sequence[str] = ("*",)
    """Which controllers run, as kube-controller-manager's own flag says it (`("*", "-job-controller")`); empty: no
    controller manager at all."""
    controllers_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The same for single clusters, by name (`{"management": ("*",)}`)."""
    scheduler: bool = False
    """Run kube-scheduler (simulated nodes place their pods themselves)."""
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    """APIs to switch on or off, e.g. `{"scheduling.k8s.io/v1alpha1": True}`."""
    disable_admission_plugins: Sequence[str] = ()
    controller_manager_qps: float = 1000.0
    """Client limit of kube-controller-manager and kube-scheduler (Kubernetes ships 20 and 50)."""
    audit_log: bool = False
    """Every request's metadata, a JSON line each, in `cluster.audit_log`."""
    sync_writes: bool | None = None
    """etcd's fsync: by default only where a data directory is given to be kept."""
    extra_args: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More flags by component, e.g. `{"kube-apiserver": ["--v=4"]}`; they win over ours."""
