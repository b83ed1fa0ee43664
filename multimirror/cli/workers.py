"""The way to a worker for commands: with the credentials that are stored for it, read by the person who asks.

By which way that is, the worker being elsewhere than the dispatcher and than we are, is for ways.py to find out.

So whoever may not read Secrets in multimirror's namespace may not look into workers this way either, and is told so.
"""

from dataclasses import dataclass, replace
from typing import Final

from multimirror.api import WORKER_CLUSTERS, SpecError, WorkerClusterSpec
from multimirror.api.ownership import Signer
from multimirror.cli import credentials
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.ways import Ways, ways_to
from multimirror.kube import ApiError, Client, Connection, Object, Resource, resources
from multimirror.kube.budget import UNTRUSTED
from multimirror.kube.errors import ConfigError, Forbidden, NotFound
from multimirror.kube.kubeconfig import Access, parse_strict
from multimirror.workers import CopyKeyError, find_copy_key, identity_of

_QUICK: Final = 10.0


@dataclass(frozen=True, slots=True)
class WorkerConnection:
    """A WorkerCluster, and how to get there."""

    name: str
    spec: WorkerClusterSpec
    access: Access
    connection: Connection
    signer: Signer | None = None
    """Knows the copies that are ours; None where its key is not to be seen from here, or nobody has made one yet."""

    @property
    def way(self) -> str:
        """By which way it was reached, in words; empty as long as it was not."""
        return self.connection.dialer.used if isinstance(self.connection.dialer, Ways) else ""

    def client(self, *, timeout: float = 30.0) -> Client:
        """For `async with`. The time of its first request includes finding the way."""
        return Client(self.connection, user_agent="multimirror-cli", timeout=timeout, limits=UNTRUSTED)


class CredentialsError(CommandError):
    """A worker's stored credentials are missing or cannot be used; `hidden`: or they are not to be seen from here."""

    def __init__(self, message: str, remedy: str, *, hidden: bool = False) -> None:
        super().__init__(message, remedy, code=Exit.REFUSED)
        self.hidden = hidden


async def cluster_named(management: Client, name: str) -> dict[str, object]:
    """The WorkerCluster, or a sentence that names those that there are."""
    try:
        found = await _get(management, WORKER_CLUSTERS, name)
    except NotFound as error:
        if not error.details.get("name"):
            raise
        found = None
    if found is None:
        known = await worker_names(management)
        remedy = f"There are {', '.join(known)}." if known else "There is none yet; `multimirror join` makes one."
        raise CommandError(f"there is no WorkerCluster {name}", remedy, code=Exit.REFUSED)
    return found


async def _get(management: Client, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
    """One object, by whichever right there is: the dispatcher's own account may list, and not get."""
    try:
        return await management.get(resource, name, namespace)
    except Forbidden:
        try:
            listed = await management.list(resource, namespace, field_selector=f"metadata.name={name}")
        except Forbidden:
            pass
        else:
            return listed.items[0] if listed.items else None
        raise


async def read_secret(management: Client, name: str, system: str) -> Object | None:
    """With a worker's credentials; None: there is none. Raises Forbidden."""
    try:
        return await _get(management, resources.SECRETS, name, system)
    except NotFound:
        return None


async def worker_names(management: Client) -> list[str]:
    """Of all WorkerClusters; none where there is no such kind."""
    try:
        return sorted(each["metadata"]["name"] for each in (await management.list(WORKER_CLUSTERS)).items)
    except NotFound:
        return []


async def worker_connection(management: Client, name: str, system: str) -> WorkerConnection:
    """Find the credentials of a worker; asks the worker nothing yet."""
    cluster = await cluster_named(management, name)
    try:
        spec = WorkerClusterSpec.read(cluster)
    except SpecError as error:
        raise CommandError(f"WorkerCluster {name} cannot be read: {error}", code=Exit.REFUSED) from error
    return await stored_connection(management, name, spec, system)


async def stored_connection(management: Client, name: str, spec: WorkerClusterSpec, system: str) -> WorkerConnection:
    """The same, for a WorkerCluster that was read already. Raises CredentialsError."""
    if spec.secret is None:
        problem = f"the kubeconfig of worker {name} is a file in the dispatcher's pod, which nobody else can read"
        raise CredentialsError(problem, "Use kubectl on the worker itself.", hidden=True)
    where, anew = f"Secret {system}/{spec.secret.name}", f"`multimirror join {name} --kubeconfig ...` makes it anew"
    try:
        secret = await read_secret(management, spec.secret.name, system)
    except Forbidden as error:
        problem = f"you may not read {where}, with which worker {name} is reached"
        remedy = f"Ask for `get secrets` in namespace {system}, or use kubectl with your own account on the worker."
        raise CredentialsError(problem, remedy, hidden=True) from error
    if secret is None:
        problem = f"there is no {where}, with which worker {name} is reached"
        raise CredentialsError(problem, f"{anew}; --system-namespace names another namespace.")
    kubeconfig = credentials.kubeconfig_in(secret, spec.secret.key)
    if kubeconfig is None:
        raise CredentialsError(f"{where} has nothing readable under {spec.secret.key!r}", f"{anew}.")
    try:
        access, connection = reachable(management, name, secret, spec.secret.key, system)
    except ConfigError as error:
        raise CredentialsError(f"{where} holds no usable kubeconfig: {error}", f"{anew}.") from error
    return WorkerConnection(name, spec, access, connection, await _signer(management, system))


def reachable(management: Client, name: str, secret: Object, key: str, system: str) -> tuple[Access, Connection]:
    """What a Secret holds, and the connection that finds a way to that worker from here. Raises ConfigError."""
    kubeconfig = credentials.kubeconfig_in(secret, key) or b""
    access, connection = parse_strict(kubeconfig), Connection.strict(kubeconfig, name=name)
    stored_in = f"{secret['metadata']['name']}/{key}"
    ways = ways_to(connection, credentials.joined_by(secret, access), management.connection, system, stored_in)
    return access, replace(connection, dialer=ways)


async def _signer(management: Client, system: str) -> Signer | None:
    try:
        key = await find_copy_key(management, system)
        return Signer(key, await identity_of(management)) if key is not None else None
    except (Forbidden, CopyKeyError):
        return None


async def stored_identity(management: Client, name: str, system: str) -> str | None:
    """Which cluster the stored credentials of a worker lead to; None where they lead nowhere, or cannot be read."""
    try:
        worker = await worker_connection(management, name, system)
        async with worker.client(timeout=_QUICK) as client:
            return await identity_of(client)
    except (CommandError, ApiError):
        return None
