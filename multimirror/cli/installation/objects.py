"""What is to be installed, from the flags: the files in deploy/manifests, with the flags put in. Pure.

The component `registration` is for a webhook that runs outside of the cluster (`multimirror run --admission-url`): API
servers are told of it, and nothing else is put there.

They are the Helm chart, rendered with its defaults, so that `multimirror install` needs neither helm nor a network; a
test holds the result against what helm renders for the same values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from multimirror.admission.registration import PATH, Registration
from multimirror.api import MANAGED_BY
from multimirror.batch import Json
from multimirror.cli.admission import SERVICE
from multimirror.cli.manifests import manifest
from multimirror.kube import resources

Admission = Literal["webhook", "policies", "none"]
Component = Literal["dispatcher", "builtin-controller", "registration"]
ADMISSIONS: Final[tuple[Admission, ...]] = get_args(Admission)
COMPONENTS: Final[tuple[Component, ...]] = get_args(Component)
NAMESPACE: Final = "multimirror-system"
"""The one that the files were rendered for."""
PART_OF: Final = "app.kubernetes.io/part-of"

KINDS: Final = {
    resource.kind: resource
    for resource in (  # in the order of installation: what is needed first comes first
        resources.NAMESPACES,
        resources.CRDS,
        resources.SECRETS,
        resources.SERVICE_ACCOUNTS,
        resources.CLUSTER_ROLES,
        resources.CLUSTER_ROLE_BINDINGS,
        resources.ROLES,
        resources.ROLE_BINDINGS,
        resources.NETWORK_POLICIES,
        resources.DISRUPTION_BUDGETS,
        resources.SERVICES,
        resources.DEPLOYMENTS,
        resources.VALIDATING_POLICIES,
        resources.VALIDATING_POLICY_BINDINGS,
        resources.MUTATING_POLICIES,
        resources.MUTATING_POLICY_BINDINGS,
        resources.MUTATING_WEBHOOKS,
    )
}
"""All kinds that there are in deploy/manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """What is to be installed: the flags of `multimirror install`."""

    component: Component = "dispatcher"
    namespace: str = NAMESPACE
    image: str | None = None
    replicas: int | None = None
    admission: Admission = "webhook"
    admission_url: str | None = None
    """Of a webhook outside of the cluster: of the component `registration`, which is all that is installed for it."""
    managed_by: str = MANAGED_BY


def objects(options: InstallOptions) -> list[Json]:
    """All that is to be there, in the order of installation; but for the webhook's authority, which is no file's
    business (authority.py)."""
    if options.component == "registration":
        return [_namespace(options.namespace), _registration(options)]
    name = "builtin-controller" if options.component == "builtin-controller" else f"multimirror-{options.admission}"
    found = [_moved(obj, options.namespace) for obj in manifest(f"manifests/{name}.yaml")]
    found = [_marked(obj, options.managed_by) for obj in found]
    for obj in found:
        if obj["kind"] == "Deployment":
            _fill_in(obj, options)
    rank = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(found, key=lambda obj: rank[obj["kind"]])


def _namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {PART_OF: "multimirror"}}}


def _registration(options: InstallOptions) -> Json:
    url = options.admission_url or f"https://127.0.0.1{PATH}"  # what is to be removed is known by its name
    return Registration(url=url, manager=options.managed_by).configuration(b"")


def superfluous(options: InstallOptions) -> list[Json]:
    """What other flags would have installed, and these do not; in the order of removal: what blocks goes first."""
    keep = {identity(obj) for obj in objects(options)}
    return [obj for obj in everything(options.component, options.namespace) if identity(obj) not in keep]


def everything(component: Component, namespace: str) -> list[Json]:
    """What any flags may have installed, in the order of removal."""
    return _all(InstallOptions(component=component, namespace=namespace, admission=each) for each in ADMISSIONS)


def identity(obj: Json) -> tuple[str, str, str]:
    """Kind, namespace ("" for none), name."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def display_name(obj: Json) -> str:
    """As kubectl says it: `deployment.apps/multimirror`."""
    resource = KINDS[obj["kind"]]
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.kind.lower()}{group}/{obj['metadata']['name']}"


def _all(choices: Iterable[InstallOptions]) -> list[Json]:
    found = {identity(obj): obj for options in choices for obj in objects(options)}
    rank = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(found.values(), key=lambda obj: -rank[obj["kind"]])


def _moved(value: Any, namespace: str) -> Any:
    """The same in another namespace: it stands alone, or at the end of a flag."""
    if isinstance(value, dict):
        return {key: _moved(inner, namespace) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved(inner, namespace) for inner in value]
    if value == NAMESPACE:
        return namespace
    if isinstance(value, str) and value.startswith("--") and value.endswith(f"={NAMESPACE}"):
        return value.removesuffix(NAMESPACE) + namespace
    return value


def _marked(value: Any, managed_by: str) -> Any:
    """The same with another mark on Jobs: in a flag, and within the expressions and messages of policies."""
    if isinstance(value, dict):
        return {key: _marked(inner, managed_by) for key, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, managed_by) for inner in value]
    return value.replace(MANAGED_BY, managed_by) if isinstance(value, str) else value


def _fill_in(deployment: Json, options: InstallOptions) -> None:
    if options.replicas is not None and deployment["metadata"]["name"] != SERVICE:
        deployment["spec"]["replicas"] = options.replicas
    if options.image is not None:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            container["image"] = options.image
