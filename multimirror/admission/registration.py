"""The MutatingWebhookConfiguration: which Jobs the API server shows us, and what it does when we do not answer.

Two webhooks, one for Jobs with the queue label, one for namespaces with a default queue; the API server calls us for no
other Job. Both fail closed: a Job that was let through without us would run on the management cluster for good, since
managedBy cannot be set later. The price is that such Jobs (no others) cannot be created while no replica answers, so
there should be two, and the timeout is short.

It is written by whoever installs multimirror, with an administrator's rights. No account of ours may change it: a
webhook sees and changes whatever its registration names, so that the right to write it is the right to read every
Secret that is created. The webhook reads it, and tells what is there that does not belong there (`foreign`).
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from multimirror.admission.certificates import KeyPair
from multimirror.api import DEFAULT_QUEUE_LABEL, MANAGED_BY, ORIGIN_LABEL, QUEUE_LABEL
from multimirror.batch import Json
from multimirror.kinds import KINDS
from multimirror.kube.resources import MUTATING_WEBHOOKS

PATH: Final = "/admit"
LABELLED: Final = "labelled.jobs.multimirror.dev"
DEFAULTED: Final = "defaulted.jobs.multimirror.dev"
_WHOM: Final = ("rules", "namespaceSelector", "objectSelector", "matchConditions")
"""The fields that say which requests a webhook sees."""


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
        """What is to be registered. `authorities`: whom API servers trust with our certificate (PEM); b"" names none,
        and API servers do not trust us until somebody else fills it in."""
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

    def missing(self, live: Json | None, shown: KeyPair | None) -> list[str]:
        """What a registration lacks for API servers to call us, for all that is ours, in words."""
        there = {each.get("name"): each for each in (live or {}).get("webhooks") or ()}
        found = []
        for wanted in self.configuration(b"")["webhooks"]:
            name, webhook = wanted["name"], there.get(wanted["name"])
            if webhook is None:
                found.append(f"{name} is not registered")
            elif webhook.get("failurePolicy") == "Ignore":
                found.append(f"{name} fails open: while it does not answer, Jobs with a queue run on this cluster")
            elif not covers(webhook, wanted):
                found.append(f"{name} is registered in another way")
            elif shown is not None and not shown.is_trusted_by(ca_bundle(webhook)):
                found.append(f"{name} names an authority that our certificate is not from")
        return found

    def foreign(self, live: Json | None) -> list[str]:
        """What is registered under our name that is not ours, in words: whoever wrote it sees what it asks for."""
        wanted = {each["name"]: each for each in self.configuration(b"")["webhooks"]}
        found = []
        for webhook in (live or {}).get("webhooks") or ():
            name, ours = webhook.get("name"), wanted.get(webhook.get("name"))
            if ours is None:
                found.append(f"the webhook {name} is not ours")
                continue
            found += [f"{key} of {name} is not ours" for key in _WHOM if (webhook.get(key) or None) != ours.get(key)]
            if _address(webhook) != _address(ours):
                found.append(f"{name} calls another address than ours")
        return found

    def _webhook(self, name: str, authorities: bytes, **selection: Any) -> Json:
        client: Json = {"caBundle": base64.b64encode(authorities).decode()} if authorities else {}
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


def ca_bundle(webhook: Json) -> bytes:
    """Whom API servers trust for it (PEM); b"" where there is nobody, or nothing that can be read."""
    try:
        return base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
    except (ValueError, binascii.Error):
        return b""


def _address(webhook: Json) -> Json:
    return {key: value for key, value in (webhook.get("clientConfig") or {}).items() if key != "caBundle"}


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


def registered_manager(live: Json) -> str | None:
    """The manager that a registration was written for."""
    for webhook in live.get("webhooks") or ():
        for condition in webhook.get("matchConditions") or ():
            found = re.search(r"object\.spec\.managedBy == '([^']+)'", str(condition.get("expression")))
            if found and condition == unmanaged(found[1]):
                return found[1]
    return None


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
