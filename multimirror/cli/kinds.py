"""The kinds of object that commands read and write, beside our own."""

from typing import Final

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.kube import Resource
from multimirror.workers import JOBS, NAMESPACES

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CLUSTER_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
EVENTS: Final = Resource("", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
MUTATING_POLICIES: Final = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False
)
PODS: Final = Resource("", "v1", "pods", "Pod")
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")

__all__ = [
    "ACCOUNTS",
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CRDS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "MIRROR_QUEUES",
    "MUTATING_POLICIES",
    "NAMESPACES",
    "PODS",
    "ROLES",
    "ROLE_BINDINGS",
    "SECRETS",
    "WORKER_CLUSTERS",
]
