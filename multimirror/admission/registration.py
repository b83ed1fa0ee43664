"""The MutatingWebhookConfiguration: which Jobs the API server shows us, and what it does when we do not answer.

Two webhooks, one for Jobs with the queue label, one for namespaces with a default queue; the API server calls us for no
other Job. Both fail closed: a Job that was let through without us would run on the management cluster for good, since
managedBy cannot be set later. The price is that such Jobs (no others) cannot be created while no replica answers, so
there should be two, and the timeout is short.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from multimirror.api import DEFAULT_QUEUE_LABEL, MANAGED_BY, ORIGIN_LABEL, QUEUE_LABEL
from multimirror.batch import Json
from multimirror.kinds import KINDS
from multimirror.kube.resources import MUTATING_WEBHOOKS

PATH: Final = "/admit"
LABELLED: Final = "labelled.jobs.multimirror.dev"
DEFAULTED: Final = "defaulted.jobs.multimirror.dev"


@dataclass(frozen=True, slots=True)
class Service:
    """The Service in front of our replicas."""

    namespace: str
    name: str
    port: int = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How the API server reaches us: by Service, or by URL where we run outside of the cluster."""

    name: str = "multimirror"
    service: Service | None = None
    url: str | None = None
    timeout_seconds: int = 2
    manager: str = MANAGED_BY

    def __post_init__(self) -> None:
        if (self.service is None) == (self.url is None):
            raise ValueError("a webhook is reached by a service or by a url: give exactly one")

    def hosts(self) -> tuple[str, ...]:
        """What our certificate must be valid for."""
        if self.url is not None:
            return (urlsplit(self.url).hostname or "",)
        assert self.service is not None
        return (f"{self.service.name}.{self.service.namespace}.svc",)

    def configuration(self, authorities: bytes) -> Json:
        """What we want to be registered, and nothing that others may decide."""
        return {
            "apiVersion": MUTATING_WEBHOOKS.api_version,
            "kind": MUTATING_WEBHOOKS.kind,
            "metadata": {"name": self.name, "labels": {"app.kubernetes.io/part-of": "multimirror"}},
            "webhooks": [
                self._webhook(LABELLED, authorities, objectSelector=labelled()),
                self._webhook(
                    DEFAULTED,
                    authorities,
                    namespaceSelector=with_default_queue(),
                    objectSelector=unlabelled(),
                    matchConditions=[unmanaged(self.manager), on_its_own()],  # else `decide` leaves it alone
                ),
            ],
        }

    def _webhook(self, name: str, authorities: bytes, **selection: Any) -> Json:
        client: Json = {"caBundle": base64.b64encode(authorities).decode()}
        if self.url is not None:
            client["url"] = self.url
        else:
            assert self.service is not None
            client["service"] = {
                "namespace": self.service.namespace,
                "name": self.service.name,
                "port": self.service.port,
                "path": PATH,
            }
        return {
            "name": name,
            "clientConfig": client,
            "rules": writes("CREATE"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "timeoutSeconds": self.timeout_seconds,
            **selection,
        }


def writes(*operations: str) -> list[Json]:
    """The rules that match these operations on every mirrored kind, and none on their status."""
    return [
        {
            "apiGroups": [kind.resource.group],
            "apiVersions": [kind.resource.version],
            "operations": list(operations),
            "resources": [kind.resource.plural],
            "scope": "Namespaced",
        }
        for kind in KINDS
    ]


def labelled() -> Json:
    """Selects Jobs that name a queue."""
    return {"matchExpressions": [{"key": QUEUE_LABEL, "operator": "Exists"}]}


def unlabelled() -> Json:
    """Selects Jobs that name none, and are no copies."""
    return {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in (QUEUE_LABEL, ORIGIN_LABEL)]}


def with_default_queue() -> Json:
    """Selects namespaces that name a queue for their Jobs."""
    named = {"key": DEFAULT_QUEUE_LABEL, "operator": "NotIn", "values": [""]}
    return {"matchExpressions": [{"key": DEFAULT_QUEUE_LABEL, "operator": "Exists"}, named]}


def unmanaged(manager: str) -> Json:
    """CEL: the Job names no other manager."""
    return {
        "name": "no-other-manager",
        "expression": f"!has(object.spec.managedBy) || object.spec.managedBy == '{manager}'",
    }


def on_its_own() -> Json:
    """CEL: the Job is not a part of something that another controller looks after."""
    return {
        "name": "no-controller-but-a-cron-job",
        "expression": "!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(owner, "
        "!has(owner.controller) || !owner.controller || owner.kind == 'CronJob')",
    }


def covers(live: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there already; what the server or others added does not matter."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and covers(live[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(covers(mine, yours) for mine, yours in zip(live, wanted, strict=True))
        )
    return bool(live == wanted)
