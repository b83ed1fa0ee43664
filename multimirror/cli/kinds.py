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
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
EVENTS: Final = Resource("", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
MUTATING_POLICIES: Final = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False
)
MUTATING_POLICY_BINDINGS: Final = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", namespaced=False
)
MUTATING_WEBHOOKS: Final = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PODS: Final = Resource("", "v1", "pods", "Pod")
ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICES: Final = Resource("", "v1", "services", "Service")
VALIDATING_POLICIES: Final = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
VALIDATING_POLICY_BINDINGS: Final = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)

__all__ = [
    "ACCOUNTS",
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CRDS",
    "DEPLOYMENTS",
    "DISRUPTION_BUDGETS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "MIRROR_QUEUES",
    "MUTATING_POLICIES",
    "MUTATING_POLICY_BINDINGS",
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "PODS",
    "ROLES",
    "ROLE_BINDINGS",
    "SECRETS",
    "SERVICES",
    "VALIDATING_POLICIES",
    "VALIDATING_POLICY_BINDINGS",
    "WORKER_CLUSTERS",
]
