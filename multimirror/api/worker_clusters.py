"""WorkerCluster: a cluster that takes Jobs, how it is reached, and how much it may be given.

The kubeconfig is in a Secret in multimirror's own namespace: no other namespace can be named, so that whoever may write
WorkerClusters cannot make us read other people's Secrets. A file is read only from the directory that the operator
allows on the command line, and its name here is relative to it.

No Job ever goes to a namespace of the cluster itself (`kube-*`) or to ours: what runs there runs next to credentials
that are worth more than any Job. Neither a mapping nor the lack of one changes that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Self

from multimirror.api import schema
from multimirror.api.reading import Fields, SpecError, read_spec
from multimirror.api.schema import Schema, rule
from multimirror.batch import Json

CONNECTED: Final = "Connected"
"""The condition that the cluster answers."""
MISBEHAVING: Final = "Misbehaving"
"""The condition that the cluster sent what no honest one does, and is left alone for a while."""
READY: Final = "Ready"
"""The condition that the cluster can be given Jobs."""
ROOM_COUNTED: Final = "RoomCounted"
"""The condition that room is counted node by node; only where it is, or is asked for (`mode: Free`)."""
RENEWED: Final = "TokenRenewed"
"""The condition that the cluster's token is renewed before it ends; only of tokens that we renew."""
DEFAULT_KEY: Final = "kubeconfig"
DEFAULT_WEIGHT: Final = 1

WORKER_SYSTEM_NAMESPACE: Final = "multimirror-system"
"""Ours, on every worker."""


def is_protected(namespace: str) -> bool:
    """A namespace of a worker to which no Job goes, whatever a WorkerCluster says."""
    return namespace.startswith("kube-") or namespace == WORKER_SYSTEM_NAMESPACE


class CapacityMode(StrEnum):
    """Where the knowledge of a cluster's capacity comes from."""

    AUTO = "Auto"
    FREE = "Free"
    DECLARED = "Declared"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret in multimirror's own namespace."""

    name: str
    key: str = DEFAULT_KEY


@dataclass(frozen=True, slots=True)
class WorkerClusterSpec:
    """What a WorkerCluster asks for. Exactly one of `secret` and `path` is set."""

    secret: SecretKey | None = None
    path: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int = DEFAULT_WEIGHT
    cordoned: bool = False
    capacity: Mapping[str, Decimal] | None = None
    """As declared; None means: add up the nodes'."""
    free: bool = False
    """Room is to be counted node by node, and whoever cannot is to say so."""
    max_jobs: int | None = None
    namespaces: Mapping[str, str] | None = None
    """The namespaces whose Jobs it takes, and what they are called there; None means: all, under their own names."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        """The spec of a WorkerCluster. Raises SpecError."""
        spec = read_spec(obj, "WorkerCluster")
        secret, path = _kubeconfig(spec.part("kubeconfig"))
        return cls(
            secret=secret,
            path=path,
            labels=spec.texts("labels"),
            weight=spec.number("weight", DEFAULT_WEIGHT, minimum=1),
            cordoned=spec.flag("cordoned"),
            capacity=_capacity(spec.part("capacity")),
            free=spec.part("capacity").choice("mode", CapacityMode.AUTO) is CapacityMode.FREE,
            max_jobs=spec.optional_number("maxJobs", minimum=1),
            namespaces=_namespaces(spec) if "namespaces" in spec else None,
        )

    def namespace_for(self, namespace: str) -> str | None:
        """What a namespace of the management cluster is called there; None if its Jobs are not taken."""
        there = namespace if self.namespaces is None else self.namespaces.get(namespace)
        return None if there is None or is_protected(there) else there


def _kubeconfig(fields: Fields) -> tuple[SecretKey | None, str | None]:
    if ("secret" in fields) == ("path" in fields):
        raise SpecError(fields.path, _ONE_SOURCE)
    if "path" in fields:
        path = fields.text("path")
        if path.startswith("/") or ".." in path.split("/"):
            raise fields.error("path", _RELATIVE)
        return None, path
    secret = fields.part("secret")
    return SecretKey(secret.text("name"), secret.text("key", DEFAULT_KEY)), None


def _capacity(fields: Fields) -> dict[str, Decimal] | None:
    declared = fields.choice("mode", CapacityMode.AUTO) is CapacityMode.DECLARED
    resources = fields.quantities("resources")
    if declared != bool(resources):
        raise SpecError(fields.path, _DECLARED)
    return resources if declared else None


def _namespaces(spec: Fields) -> dict[str, str]:
    def one(value: Any, path: str) -> tuple[str, str]:
        entry = Fields(value, path)
        name = entry.text("name")
        return name, entry.text("workerNamespace", name)

    pairs = spec.items("namespaces", one)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise spec.error("namespaces", "must not name a namespace twice")
    if len(set(found.values())) != len(found):
        raise spec.error("namespaces", _OWN_NAMESPACE)
    if any(is_protected(there) for there in found.values()):
        raise spec.error("namespaces", _PROTECTED)
    return found


_ONE_SOURCE: Final = "name exactly one of secret and path"
_RELATIVE: Final = "must be relative to the directory that the operator allows, without '..'"
_DECLARED: Final = "resources are given if, and only if, mode is Declared"
_OWN_NAMESPACE: Final = "must not send two namespaces to the same workerNamespace: their Jobs would mix"
_PROTECTED: Final = f"must not send Jobs to kube-* or {WORKER_SYSTEM_NAMESPACE}: no Job ever runs there"
_TARGET: Final = "(has({0}.workerNamespace) ? {0}.workerNamespace : {0}.name)"


def spec_schema() -> Schema:
    """The schema of spec."""
    return schema.struct(
        "How the cluster is reached, and what it may be given.",
        {
            "kubeconfig": _kubeconfig_schema(),
            "labels": schema.labels(
                "Labels of the cluster, for the selectors of MirrorQueues: region, hardware, price."
            ),
            "weight": schema.whole(
                "Its share under the placement Weighted, relative to the others'; ties elsewhere go to the heavier.",
                minimum=1,
                maximum=1000,
                default=DEFAULT_WEIGHT,
            ),
            "cordoned": schema.flag("Take no new Jobs. Those that are there stay.", default=False),
            "capacity": _capacity_schema(),
            "maxJobs": schema.whole(
                "The most Jobs at a time, of all queues together. Without it: no limit. To take none, set cordoned.",
                minimum=1,
            ),
            "namespaces": _namespaces_schema(),
        },
        required=("kubeconfig",),
    )


def _kubeconfig_schema() -> Schema:
    secret = schema.struct(
        "A key of a Secret in multimirror's own namespace. Changes are followed at once.",
        {
            "name": schema.text("The Secret's name.", pattern=schema.DNS_SUBDOMAIN),
            "key": schema.text(
                "The key under which the kubeconfig is.", pattern=r"^[-._a-zA-Z0-9]+$", default=DEFAULT_KEY
            ),
        },
        required=("name",),
    )
    path = schema.text(
        "A file, relative to the directory that the operator allows with --kubeconfig-directory.",
        limit=1024,
    )
    inside = rule("!self.startsWith('/') && !self.split('/').exists(part, part == '..')", _RELATIVE)
    source = schema.struct(
        "Where the kubeconfig is. It must be self-contained: no files, no programs to run, no proxies, verified TLS.",
        {"secret": secret, "path": schema.ruled(path, inside)},
    )
    return schema.ruled(source, rule("has(self.secret) != has(self.path)", _ONE_SOURCE))


def _capacity_schema() -> Schema:
    capacity = schema.struct(
        "How much it can run.",
        {
            "mode": schema.choice(
                "Auto: what the nodes have to allocate; where the account may list all pods, as Free. Free: what is "
                "left on each node, whoever's pods are there; without that right it says so, and counts as Auto. "
                "Declared: what resources says.",
                CapacityMode.AUTO,
            ),
            "resources": schema.quantities("With mode Declared: amounts of cpu, memory and any other resource."),
        },
        default={"mode": CapacityMode.AUTO.value},
    )
    given = "(self.mode == 'Declared') == (has(self.resources) && size(self.resources) > 0)"
    return schema.ruled(capacity, rule(given, _DECLARED))


def _namespaces_schema() -> Schema:
    entry = schema.struct(
        "A namespace whose Jobs may come here.",
        {
            "name": schema.text("The namespace on the management cluster.", pattern=schema.DNS_LABEL, limit=63),
            "workerNamespace": schema.text(
                "What it is called on this cluster; without it, the same.", pattern=schema.DNS_LABEL, limit=63
            ),
        },
        required=("name",),
    )
    unique = f"self.all(a, self.exists_one(b, {_TARGET.format('b')} == {_TARGET.format('a')}))"
    target = _TARGET.format("a")
    allowed = f"self.all(a, !{target}.startsWith('kube-') && {target} != '{WORKER_SYSTEM_NAMESPACE}')"
    namespaces = schema.keyed(
        "The only namespaces whose Jobs may come here. Without it: all but kube-* and ours, each under its own name.",
        entry,
        "name",
        limit=256,
        minItems=1,
    )
    return schema.ruled(namespaces, rule(unique, _OWN_NAMESPACE), rule(allowed, _PROTECTED))


def status_schema() -> Schema:
    """The schema of status."""
    return schema.struct(
        "What was found out about the cluster. Written by multimirror.",
        {
            "observedGeneration": schema.generation("The generation of the spec that this status answers."),
            "conditions": schema.conditions(
                "Connected: it answers. Ready: it can be given Jobs. Misbehaving: it sent what no honest cluster "
                "does. RoomCounted: what is left on each of its nodes is known. TokenRenewed: its token is renewed "
                "before it ends. Each with the reason."
            ),
            "version": schema.text("The Kubernetes version of its API server."),
            "identity": schema.text(
                "Which cluster it is: the uid of its kube-system namespace, recorded at first contact. No other "
                "WorkerCluster gets the same.",
                limit=64,
            ),
            "formerIdentities": schema.name_set(
                "Which clusters were in its place before it was installed anew, or changed places with another. What "
                "multimirror made there in the seconds before it noticed is known by these.",
                schema.text("The uid of a kube-system namespace.", limit=64),
                limit=8,
            ),
            "misbehaviour": _misbehaviour_schema(),
            "lastContact": schema.timestamp("When it last answered."),
            "tokenExpires": schema.timestamp("When the token in its kubeconfig comes to its end, if it does."),
            "latencyMilliseconds": schema.whole("How long it took to answer, lately."),
            "jobs": schema.whole("How many of our Jobs run there."),
            "capacity": schema.quantities("What it can run in all."),
            "used": schema.quantities("What the Jobs that we sent there ask for."),
            "kinds": schema.name_set(
                "The kinds of Job that can be run there, such as Job.batch.", schema.text("A kind."), limit=64
            ),
        },
    )


def _misbehaviour_schema() -> Schema:
    return schema.struct(
        "It sent more, or larger things, than our Jobs there explain. It is left alone for a while, longer each time. "
        "Take this out of the status, or change the kubeconfig, to have it tried at once.",
        {
            "count": schema.whole("How often in a row."),
            "until": schema.timestamp("Until when it is left alone."),
            "message": schema.text("What it did last.", limit=1024),
        },
    )


def printer_columns() -> list[Json]:
    """What `kubectl get` shows."""
    return [
        _condition_column("Ready", READY, "Whether it can be given Jobs"),
        _condition_column("Connected", CONNECTED, "Whether it answers"),
        {"name": "Cordoned", "type": "boolean", "jsonPath": ".spec.cordoned", "description": "Takes no new Jobs"},
        {"name": "Jobs", "type": "integer", "jsonPath": ".status.jobs", "description": "Jobs of ours that run there"},
        {"name": "Version", "type": "string", "jsonPath": ".status.version", "description": "Kubernetes version"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {
            "name": "Reason",
            "type": "string",
            "jsonPath": f'.status.conditions[?(@.type=="{READY}")].message',
            "description": "Why it is, or is not, ready",
            "priority": 1,
        },
        {"name": "Latency", "type": "integer", "jsonPath": ".status.latencyMilliseconds", "priority": 1},
        {"name": "Weight", "type": "integer", "jsonPath": ".spec.weight", "priority": 1},
    ]


def _condition_column(name: str, condition: str, description: str) -> Json:
    path = f'.status.conditions[?(@.type=="{condition}")].status'
    return {"name": name, "type": "string", "jsonPath": path, "description": description}
