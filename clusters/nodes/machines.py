"""The Node objects: what they say of themselves, and where a new pod goes.

Pure. A node counts as usable while it is up and not cordoned; a pod goes to the usable node with the fewest pods
among those that its nodeSelector allows. Nothing is weighed against capacity: a simulated node has as much as its
user says it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.nodes.status import timestamp

Json = dict[str, Any]
HOST: Final = "127.0.0.1"
DEFAULT_CAPACITY: Final[Mapping[str, str]] = {
    "cpu": "64",
    "memory": "256Gi",
    "ephemeral-storage": "1Ti",
    "pods": "10000",
}
LEASE_SECONDS: Final = 40
_VERSION: Final = "v1.36.4"


@dataclass(slots=True)
class Machine:
    """One simulated node."""

    name: str
    labels: dict[str, str]
    pods: set[str] = field(default_factory=set)
    """Keys of the pods that are bound here and not over."""
    cordoned: bool = False
    down_since: float | None = None
    down_for: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether new pods may come."""
        return self.down_since is None and not self.cordoned


def choose(machines: Iterable[Machine], selector: Mapping[str, str]) -> Machine | None:
    """The node for a new pod."""
    fitting = (machine for machine in machines if machine.usable and selector.items() <= machine.labels.items())
    return min(fitting, key=lambda machine: len(machine.pods), default=None)


def labels_of(name: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The labels that a kubelet gives its node, and those asked for."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.multimirror.dev/simulated": "true",
        **extra,
    }


def node_object(machine: Machine, capacity: Mapping[str, str], port: int, now: float) -> Json:
    """The Node as a kubelet registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": machine.labels},
        "spec": {},
        "status": node_status(capacity, port, now),
    }


def node_status(capacity: Mapping[str, str], port: int, now: float) -> Json:
    """Up and ready. The addresses hold no host name: API servers would try to resolve it before they ask for logs."""
    resources = {**DEFAULT_CAPACITY, **capacity}
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            _condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory", now),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now),
            _condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available", now),
            ready(now),
        ],
        "addresses": [{"type": "InternalIP", "address": HOST}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": "simulated",
            "systemUUID": "simulated",
            "bootID": "simulated",
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": _VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def ready(now: float) -> Json:
    """The condition of a node that is up."""
    return _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)


def silent(now: float) -> Json:
    """The condition of a node that is down, as the control plane notices it."""
    return _condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now)


def _condition(kind: str, status: str, reason: str, message: str, now: float) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": timestamp(now),
    }


def lease_object(name: str, renewed: str) -> Json:
    """The node's heartbeat."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed},
    }
