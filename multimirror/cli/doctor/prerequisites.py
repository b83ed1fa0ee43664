"""What the dispatcher needs of its management cluster, asked before it is started: `multimirror run --check`.

The cluster answers and knows spec.managedBy; our kinds and our namespace are there; the account may do what it will
have to do. Each finding is a sentence, with its remedy where something is missing.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multimirror.admission.placement import VERB
from multimirror.api import GROUP, MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.kube import Client, Resource
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.kube.resources import NAMESPACES, SELF_SUBJECT_ACCESS_REVIEWS

_OLDEST: Final = (1, 32)  # from here on spec.managedBy is switched on


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked."""

    good: bool
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """Something that the account must be allowed to do."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}{where}"


def rights(namespace: str, *, lease: str | None, admission: bool) -> list[Right]:
    """All that is used. `lease`: the one that candidates for leadership share."""
    followed = [("namespaces", ""), ("jobs", "batch"), ("workerclusters", GROUP), ("mirrorqueues", GROUP)]
    written = [("jobs", "batch"), ("jobs/status", "batch"), ("workerclusters/status", GROUP)]
    written += [("mirrorqueues/status", GROUP), ("events", "")]
    wanted = [Right(verb, resource, group) for resource, group in followed for verb in ("list", "watch")]
    wanted += [Right("patch", resource, group) for resource, group in written]
    wanted += [Right("get", "namespaces"), Right("create", "events"), Right("list", "events")]
    wanted.append(Right(VERB, "mirrorqueues", GROUP))
    wanted += [Right(verb, "secrets", namespace=namespace) for verb in ("list", "watch")]
    if lease is not None:
        wanted += [Right(verb, "leases", "coordination.k8s.io", namespace, lease) for verb in ("get", "update")]
        wanted.append(Right("create", "leases", "coordination.k8s.io", namespace))
    if admission:
        hooks = ("mutatingwebhookconfigurations", "admissionregistration.k8s.io")
        wanted += [Right(verb, *hooks, name="multimirror") for verb in ("list", "watch", "patch")]
        wanted.append(Right("create", "secrets", namespace=namespace))
    return wanted


async def examine(client: Client, namespace: str, wanted: Sequence[Right]) -> list[Finding]:
    """Ask the cluster. Raises when it does not answer, or does not let us in."""
    version = orjson.loads((await client.request("GET", "/version")).body)
    findings = [
        _version(version),
        await _kind(client, WORKER_CLUSTERS),
        await _kind(client, MIRROR_QUEUES),
        await _namespace(client, namespace),
    ]
    allowed = await asyncio.gather(*(_may(client, right) for right in wanted))
    findings.append(_account(right for right, yes in zip(wanted, allowed, strict=True) if not yes))
    return findings


def _version(found: Json) -> Finding:
    name = str(found.get("gitVersion", ""))
    numbers = [int(re.sub(r"[^0-9].*", "", str(found.get(part, ""))) or 0) for part in ("major", "minor")]
    if tuple(numbers) < _OLDEST:
        text = f"the management cluster is Kubernetes {name}, which does not know spec.managedBy"
        return Finding(good=False, text=text, remedy="Use Kubernetes 1.32 or newer.")
    return Finding(good=True, text=f"the management cluster answers: Kubernetes {name}")


async def _kind(client: Client, resource: Resource) -> Finding:
    name = f"{resource.plural}.{resource.group}"
    try:
        await client.list(resource)
    except NotFound:
        return Finding(good=False, text=f"the kind {name} is not there", remedy="Install it: `multimirror install`.")
    except Forbidden:
        return Finding(good=False, text=f"the account may not list {name}", remedy="See the account's rights below.")
    return Finding(good=True, text=f"the kind {name} is there")


async def _namespace(client: Client, name: str) -> Finding:
    try:
        await client.get(NAMESPACES, name)
    except NotFound:
        remedy = f"Make it (`kubectl create namespace {name}`), or choose another with --namespace."
        return Finding(good=False, text=f"the namespace {name} is not there", remedy=remedy)
    except Forbidden:
        return Finding(
            good=False, text=f"the account may not read the namespace {name}", remedy="See its rights below."
        )
    return Finding(good=True, text=f"the namespace {name} is there")


def _account(missing: Iterable[Right]) -> Finding:
    found = [str(right) for right in missing]
    if found:
        remedy = "Give it the roles that `multimirror install` makes."
        return Finding(good=False, text=f"the account may not {', '.join(found)}", remedy=remedy)
    return Finding(good=True, text="the account may do all that is needed")


async def _may(client: Client, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {"spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}}}
    answer = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, review)
    return bool((answer.get("status") or {}).get("allowed"))
