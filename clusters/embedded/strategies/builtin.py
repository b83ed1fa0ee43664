"""The built-in kinds: where they are served, how they are called, what is particular to them."""

from collections.abc import Callable
from typing import Final

from clusters.embedded.custom import Definitions
from clusters.embedded.kinds import Kind, Strategy
from clusters.embedded.schemas import builtin
from clusters.embedded.store import Store
from clusters.embedded.strategies import simple
from clusters.embedded.strategies.events import from_core, to_core
from clusters.embedded.strategies.jobs import CronJobs, Jobs
from clusters.embedded.strategies.namespaces import Namespaces
from clusters.embedded.strategies.pods import Pods
from clusters.embedded.strategies.policies import Policies, PolicyBindings
from clusters.embedded.strategies.workloads import PodGroups, Workloads

_PACKAGES: Final = {
    "": "io.k8s.api.core",
    "batch": "io.k8s.api.batch",
    "events.k8s.io": "io.k8s.api.events",
    "coordination.k8s.io": "io.k8s.api.coordination",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration",
    "scheduling.k8s.io": "io.k8s.api.scheduling",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "authentication.k8s.io": "io.k8s.api.authentication",
    "authorization.k8s.io": "io.k8s.api.authorization",
}


def make_kind(
    store: Store,
    api_version: str,
    plural: str,
    kind: str,
    strategy: Strategy,
    *,
    short: str = "",
    namespaced: bool = True,
    subresources: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] | None = None,
) -> Kind:
    """A built-in kind."""
    group, _, version = api_version.rpartition("/")
    resource = f"{plural}.{group}" if group else plural
    made = Kind(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        shape=builtin().struct(f"{_PACKAGES[group]}.{version}.{kind}"),
        table=store.table(resource, strategy.fields),
        strategy=strategy,
        namespaced=namespaced,
        short_names=tuple(short.split()),
        subresources=subresources,
        categories=categories,
    )
    if verbs is not None:
        made.verbs = verbs
    return made


def _events_view(store: Store) -> Kind:
    """The events of the core group once more: read and created here under other names."""
    made = make_kind(store, "events.k8s.io/v1", "events", "Event", simple.Events(), short="ev")
    made.table = store.table("events", made.strategy.fields)
    made.storage, made.stored_version = False, "v1"
    made.from_stored, made.to_stored = from_core, to_core
    made.verbs = ("create", "delete", "deletecollection", "get", "list", "watch")
    return made


def builtin_kinds(store: Store, now: Callable[[], str]) -> list[Kind]:
    """All of them."""
    rbac, registration, authorization = (
        "rbac.authorization.k8s.io/v1",
        "admissionregistration.k8s.io/v1",
        "authorization.k8s.io/v1",
    )
    return [
        make_kind(
            store,
            "v1",
            "namespaces",
            "Namespace",
            Namespaces(),
            short="ns",
            namespaced=False,
            subresources=("status", "finalize"),
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        ),
        make_kind(
            store,
            "v1",
            "pods",
            "Pod",
            Pods(),
            short="po",
            categories=("all",),
            subresources=("status", "log", "binding", "eviction"),
        ),
        make_kind(store, "v1", "nodes", "Node", simple.Nodes(), short="no", namespaced=False, subresources=("status",)),
        make_kind(store, "v1", "configmaps", "ConfigMap", simple.ConfigMaps(), short="cm"),
        make_kind(
            store,
            "v1",
            "services",
            "Service",
            simple.Services(),
            short="svc",
            categories=("all",),
            subresources=("status",),
        ),
        make_kind(store, "v1", "secrets", "Secret", simple.Secrets()),
        make_kind(store, "v1", "events", "Event", simple.Events(), short="ev"),
        make_kind(
            store,
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            simple.ServiceAccounts(),
            short="sa",
            subresources=("token",),
        ),
        make_kind(store, "batch/v1", "jobs", "Job", Jobs(), categories=("all",), subresources=("status",)),
        make_kind(
            store,
            "batch/v1",
            "cronjobs",
            "CronJob",
            CronJobs(),
            short="cj",
            categories=("all",),
            subresources=("status",),
        ),
        _events_view(store),
        make_kind(store, "coordination.k8s.io/v1", "leases", "Lease", simple.Leases()),
        make_kind(store, "scheduling.k8s.io/v1alpha2", "workloads", "Workload", Workloads()),
        make_kind(
            store,
            "scheduling.k8s.io/v1alpha2",
            "podgroups",
            "PodGroup",
            PodGroups(),
            subresources=("status",),
        ),
        make_kind(store, rbac, "roles", "Role", simple.Rules()),
        make_kind(store, rbac, "rolebindings", "RoleBinding", simple.Rules()),
        make_kind(store, rbac, "clusterroles", "ClusterRole", simple.Rules(), namespaced=False),
        make_kind(store, rbac, "clusterrolebindings", "ClusterRoleBinding", simple.Rules(), namespaced=False),
        make_kind(
            store,
            registration,
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            simple.Webhooks(),
            namespaced=False,
            categories=("api-extensions",),
        ),
        make_kind(
            store,
            registration,
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            simple.Webhooks(),
            namespaced=False,
            categories=("api-extensions",),
        ),
        make_kind(
            store,
            registration,
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            Policies(),
            namespaced=False,
            categories=("api-extensions",),
            subresources=("status",),
        ),
        make_kind(
            store,
            registration,
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            PolicyBindings(),
            namespaced=False,
            categories=("api-extensions",),
        ),
        make_kind(
            store,
            "apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            Definitions(now),
            short="crd crds",
            namespaced=False,
            categories=("api-extensions",),
            subresources=("status",),
        ),
        *(
            make_kind(store, api_version, plural, kind, Strategy(), namespaced=namespaced, verbs=("create",))
            for api_version, plural, kind, namespaced in (
                ("authentication.k8s.io/v1", "tokenreviews", "TokenReview", False),
                ("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", False),
                (authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
                (authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
                (authorization, "subjectaccessreviews", "SubjectAccessReview", False),
                (authorization, "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
            )
        ),
    ]
