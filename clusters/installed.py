"""multimirror installed on a fleet, as an operator would have done it, for `multimirror fleet` and the demo.

On the management cluster: our kinds, our namespace, admission by webhook, the policies that guard where Jobs are (an
embedded cluster keeps them, and does not evaluate them), a WorkerCluster for each worker and some queues; Jobs of the
namespace `default` that name no queue get the first. The dispatcher and the webhook run in this process, the dispatcher
as the account that an installation has for it: the policies take no administrator for it. Everything is applied, so
that a fleet whose state was kept comes back as it was.
"""

import asyncio
import base64
import contextlib
import copy
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import orjson

from clusters.fleet import Fleet, Kubeconfig
from multimirror.admission import NAMESPACES, PATH, AdmissionServer, Registration, Webhook
from multimirror.api import COHORTS, DEFAULT_QUEUE_LABEL, MIRROR_QUEUES, READY, WORKER_CLUSTERS, crds
from multimirror.batch import Json, find_condition
from multimirror.cli.admission import AUTHORITY
from multimirror.cli.apply import apply
from multimirror.cli.connection import SYSTEM_NAMESPACE
from multimirror.cli.doctor.prerequisites import permissions
from multimirror.cli.installation import objects as installation
from multimirror.cli.installation.authority import with_authority
from multimirror.cli.manifests import manifest
from multimirror.cli.placement_policy import apply_placement_policy
from multimirror.dispatcher import Dispatcher
from multimirror.kube import ApiError, Change, Client, Connection, Informer, Resource
from multimirror.kube.access import denied
from multimirror.kube.resources import CRDS, SECRETS
from multimirror.options import DispatcherOptions
from multimirror.workers import Heartbeat

TEAM: Final = "default"
"""The namespace whose Jobs need no label."""
_PATIENCE: Final = 120.0
_MANAGER: Final = "multimirror-fleet"
_RIGHTS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """How it is installed."""

    queues: Mapping[str, Json] = field(default_factory=lambda: {"default": {}})
    """The specs of the queues; the first is the default of the namespace `default`."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    ways: Mapping[str, Kubeconfig] = field(default_factory=dict)
    """How the dispatcher is to reach workers, where that is not by their own kubeconfigs."""


@contextlib.asynccontextmanager
async def installed(fleet: Fleet, options: InstallOptions | None = None) -> AsyncIterator[Client]:
    """Gives a client of the management cluster; on entry every worker has been joined and the dispatcher works."""
    connection = Connection.from_kubeconfig(fleet.management.kubeconfig, name=fleet.management.name)
    options = options or InstallOptions()
    of_the_dispatcher = DispatcherOptions(namespace=SYSTEM_NAMESPACE, heartbeat=options.heartbeat)
    async with (
        Client(connection, user_agent=_MANAGER) as client,
        _admission(client, await fleet.host_address()),
        Client(_as_dispatcher(fleet), user_agent="multimirror") as own,
    ):
        await _join(client, fleet, options)
        await _allowed(own)
        async with await Dispatcher.connect(own, of_the_dispatcher):
            await _ready(client, set(fleet.workers))
            yield client


def _as_dispatcher(fleet: Fleet) -> Connection:
    config = copy.deepcopy(dict(fleet.management.kubeconfig))
    for user in config["users"]:
        user["user"]["as"] = f"system:serviceaccount:{SYSTEM_NAMESPACE}:multimirror"
    return Connection.from_kubeconfig(config, name=fleet.management.name)


async def _allowed(own: Client) -> None:
    """Until its roles are in force: a moment after they were written."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            if not await denied(own, permissions(SYSTEM_NAMESPACE, lease=None, admission=False)):
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _admission(client: Client, address: str) -> AsyncIterator[None]:
    """Our kinds, our namespace, and admission."""
    await _apply(client, NAMESPACES, SYSTEM_NAMESPACE, {})
    for definition in crds():
        await _apply(client, CRDS, definition["metadata"]["name"], definition)
    for resource in (WORKER_CLUSTERS, MIRROR_QUEUES, COHORTS):
        await _served(client, resource)
    for document in manifest("manifests/multimirror-none.yaml"):
        if document["kind"] in _RIGHTS:
            await apply(client, document, manager=_MANAGER)
    await apply_placement_policy(client, manager=_MANAGER)
    namespaces, queues = Informer(client, NAMESPACES), Informer(client, MIRROR_QUEUES)
    async with namespaces, queues, AdmissionServer(client, namespaces, queues, host=address, port=0) as server:
        url = f"https://{address}:{server.port}{PATH}"
        wanted = installation.objects(installation.InstallOptions(component="registration", admission_url=url))
        for obj in await with_authority(client, wanted, SYSTEM_NAMESPACE, datetime.now(UTC)):
            await apply(client, obj, manager=_MANAGER)
        secret = (SYSTEM_NAMESPACE, AUTHORITY)
        async with Webhook(client, server, Registration(url=url), secret=secret) as webhook:
            async with asyncio.timeout(_PATIENCE):
                await webhook.registered()
            yield


async def _served(client: Client, resource: Resource) -> None:
    """A real API server takes a moment to serve a kind that was just defined, and says nothing when it does."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            with contextlib.suppress(ApiError):
                await client.list(resource)
                return
            await asyncio.sleep(0.05)


async def _join(client: Client, fleet: Fleet, options: InstallOptions) -> None:
    for name, cluster in fleet.workers.items():
        data = base64.b64encode(orjson.dumps(options.ways.get(name, cluster.kubeconfig))).decode()
        await _apply(client, SECRETS, name, {"data": {"kubeconfig": data}}, SYSTEM_NAMESPACE)
        await _apply(client, WORKER_CLUSTERS, name, {"spec": {"kubeconfig": {"secret": {"name": name}}}})
    for name, spec in options.queues.items():
        await _apply(client, MIRROR_QUEUES, name, {"spec": spec})
    labels = {DEFAULT_QUEUE_LABEL: next(iter(options.queues))}
    await _apply(client, NAMESPACES, TEAM, {"metadata": {"labels": labels}})


async def _ready(client: Client, workers: set[str]) -> None:
    """Until the dispatcher says that it can use every worker."""
    waiting, done = set(workers), asyncio.Event()

    def changed(change: Change) -> None:
        conditions = (change.object.get("status") or {}).get("conditions") or ()
        if (find_condition(conditions, READY) or {}).get("status") == "True":
            waiting.discard(change.object["metadata"]["name"])
        if not waiting:
            done.set()

    informer = Informer(client, WORKER_CLUSTERS)
    informer.add_handler(changed)
    async with informer, asyncio.timeout(_PATIENCE):
        if workers:
            await done.wait()


async def _apply(client: Client, resource: Resource, name: str, obj: Json, namespace: str | None = None) -> None:
    whole = {
        **obj,
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**obj.get("metadata", {}), "name": name},
    }
    await apply(client, whole, namespace, manager=_MANAGER)
