"""What a kind fleet understands beyond what every fleet does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusters.fleet import FleetOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOptions(FleetOptions):
    prefix: str | None = None
    """Clusters are named `<prefix>-management`, `<prefix>-worker-1`, ... None: `multimirror` where they are kept, else
    one of its own for each fleet, so that several can be up."""
    node_image: str | None = None
    """e.g. `kindest/node:v1.36.4`; None: what the environment names (MULTIMIRROR_NODE_IMAGE), else the version that
    everything is tested on, as an image that is in this Docker already, or else kind's own."""
    kubernetes_version: str | None = None
    """`1.35`, or `1.35.4`, instead of an image's name."""
    controllers: Sequence[str] = ("*",)
    """Which controllers run on the workers, as kube-controller-manager's flag says it (`("*", "-job-controller")`)."""
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    """Node port of the management cluster: port on this host's loopback."""
    images: Sequence[str] = ()
    """Images of this host's Docker that every cluster is to have."""
    keep: bool = False
    """Leave the clusters running at the end, and use those that are there at the start."""
    wait_seconds: int = 180
    at_once: int = 2
    """So many clusters are created side by side."""
