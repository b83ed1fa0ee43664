"""What the dispatcher needs of its management cluster, asked before it is started: `multimirror run --check`.

The cluster answers and knows spec.managedBy; our kinds and our namespace are there; the account may do what it will
have to do. The kind Cohort is newer than the others, and an installation without it is only warned about: the
dispatcher goes on without.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from multimirror.admission.placement import VERB
from multimirror.api import COHORTS, GROUP, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.cli.doctor.checks import MANAGED_BY_SINCE, minor
from multimirror.cli.doctor.findings import MANAGEMENT, Finding, fault, ok, warning
from multimirror.cli.doctor.management import check_namespace
from multimirror.kube import Client, Resource
from multimirror.kube.access import Permission, denied
from multimirror.kube.discovery import is_served
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.workers.copy_key import COPY_KEY_NAME
from multimirror.workers.probe import version_of

_EVERYTHING: Final = Permission("*", MIRROR_QUEUES.plural, GROUP)


def permissions(namespace: str, *, lease: str | None, admission: bool) -> list[Permission]:
    """All that is used. `lease`: the one that candidates for leadership share. `admission`: the webhook's too."""
    followed = [("namespaces", ""), ("jobs", "batch")]
    followed += [(kind.plural, GROUP) for kind in (WORKER_CLUSTERS, MIRROR_QUEUES, COHORTS)]
    written = [("jobs", "batch"), ("jobs/status", "batch"), ("workerclusters/status", GROUP)]
    written += [("mirrorqueues/status", GROUP), ("cohorts/status", GROUP), ("events", "")]
    needed = [Permission(verb, resource, group) for resource, group in followed for verb in ("list", "watch")]
    needed += [Permission("patch", resource, group) for resource, group in written]
    needed += [Permission("get", "namespaces"), Permission("get", "jobs", "batch")]
    needed += [Permission("create", "events"), Permission("list", "events")]
    needed.append(Permission(VERB, "mirrorqueues", GROUP))
    needed += [Permission(verb, "secrets", namespace=namespace) for verb in ("list", "watch", "create", "patch")]
    needed.append(Permission("get", "secrets", namespace=namespace, name=COPY_KEY_NAME))
    if lease is not None:
        needed += [Permission(verb, "leases", "coordination.k8s.io", namespace, lease) for verb in ("get", "update")]
        needed.append(Permission("create", "leases", "coordination.k8s.io", namespace))
    if admission:
        hooks = ("mutatingwebhookconfigurations", "admissionregistration.k8s.io")
        needed += [Permission(verb, *hooks, name="multimirror") for verb in ("list", "watch")]
    return needed


async def check_prerequisites(client: Client, namespace: str, needed: Sequence[Permission]) -> list[Finding]:
    """Ask the cluster. Raises when it does not answer, or does not let us in."""
    trees = await is_served(client, COHORTS)
    if not trees:
        needed = [each for each in needed if each.resource.partition("/")[0] != COHORTS.plural]
    return [
        _version(await version_of(client)),
        await _kind(client, WORKER_CLUSTERS),
        await _kind(client, MIRROR_QUEUES),
        await _kind(client, COHORTS) if trees else _no_trees(),
        await check_namespace(client, namespace, "--namespace"),
        _account(await denied(client, needed), everything=not await denied(client, [_EVERYTHING])),
    ]


def _version(version: str) -> Finding:
    if minor(version) < MANAGED_BY_SINCE:
        message = f"the management cluster is Kubernetes {version}, which does not know spec.managedBy"
        return fault("Version", MANAGEMENT, message, "Use Kubernetes 1.32 or newer.")
    return ok("Version", MANAGEMENT, f"the management cluster answers: Kubernetes {version}")


def _no_trees() -> Finding:
    message = f"the kind {COHORTS.name} is not there: queues can share, but not in trees"
    return warning("Kinds", MANAGEMENT, message, "Install it: `multimirror install`.")


async def _kind(client: Client, resource: Resource) -> Finding:
    """As the dispatcher sees it: its account may not read CustomResourceDefinitions."""
    name = f"{resource.plural}.{resource.group}"
    try:
        await client.list(resource)
    except NotFound:
        return fault("Kinds", MANAGEMENT, f"the kind {name} is not there", "Install it: `multimirror install`.")
    except Forbidden:
        return fault("Kinds", MANAGEMENT, f"the account may not list {name}", "See the account's rights below.")
    return ok("Kinds", MANAGEMENT, f"the kind {name} is there")


def _account(lacking: Iterable[Permission], *, everything: bool) -> Finding:
    found = [str(permission) for permission in lacking]
    if found:
        remedy = "Give it the roles that `multimirror install` makes."
        return fault("Rights", MANAGEMENT, f"the account may not {', '.join(found)}", remedy)
    note = ", and everything else: the policy multimirror-placement does not take such an account for the dispatcher"
    return ok("Rights", MANAGEMENT, f"the account may do all that is needed{note if everything else ''}")
