"""`multimirror join`: a cluster becomes a worker. Every step may be repeated, and repairs what an earlier one left.

On the worker: what deploy/worker says, and a token for that account. On the management cluster: a Secret with a
kubeconfig of that account alone, and the WorkerCluster. The token is tried before it is stored, with the questions that
the dispatcher will ask. Nothing is ever taken away: a join with fewer namespaces says what an earlier one granted.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from multimirror.api import WORKER_CLUSTERS, SpecError, WorkerClusterSpec
from multimirror.batch import Json
from multimirror.cli import tokens
from multimirror.cli.applying import apply, apply_all
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.manifests import manifest
from multimirror.cli.progress import say
from multimirror.cli.reaching import stored_identity
from multimirror.kube import ApiError, Client, Connection, KubeError, resources
from multimirror.kube.errors import AlreadyExists, Forbidden, NotFound, Unauthorized
from multimirror.kube.kubeconfig import Access, parse_strict
from multimirror.workers.probe import Facts, check, identity_of, version_of

ACCOUNT: Final = ("multimirror-system", "multimirror")
TOKEN_SECRET: Final = "multimirror-token"  # noqa: S105 - the name of a Secret
_SETTLE: Final = 20.0
"""Roles take effect a moment after they were written."""
_ENOUGH: Final = 0.9
"""A server may give a token less time than was asked for; this share of it will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for. None: as it is, or as it is by default."""

    name: str
    namespaces: Mapping[str, str] | None = None
    every_namespace: bool = False
    create_namespaces: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int | None = None
    max_jobs: int | None = None
    server: str | None = None
    token_duration: timedelta = timedelta(days=365)
    new_token: bool = False
    same_cluster: bool = False


async def join(management: Client, worker: Client, access: Access, wish: Wish, system: str) -> None:
    """Make the cluster behind `worker` a worker of that name; returns when the WorkerCluster is there."""
    existing = await _existing(management, wish.name)
    namespaces = _namespaces(wish, existing)
    identity, version = await asyncio.gather(identity_of(worker), version_of(worker))
    await _check_identity(management, identity, wish)
    if existing is not None and await stored_identity(management, wish.name, system) not in {None, identity}:
        remedy = f"Choose another name, or `multimirror leave {wish.name}` first: its Jobs would be lost."
        raise CommandError(f"{wish.name} is the name of another cluster", remedy, code=Exit.REFUSED)
    say(f"worker {wish.name}: Kubernetes {version} at {wish.server or access.server}")
    await _check_namespaces(worker, wish, namespaces)
    await _grant(worker, namespaces, account=not await _has_account(worker, wish))
    reference = _reference(existing, wish.name)
    await _system_namespace(management, system)
    kubeconfig = await _kubeconfig(management, worker, access, wish, (system, *reference))
    facts = await _try(kubeconfig, wish.name, namespaces)
    if facts.missing:
        problem = f"the account may not {', '.join(facts.missing)} on worker {wish.name}"
        raise CommandError(problem, "Does something on that cluster take its roles away?", code=Exit.REFUSED)
    secret = tokens.secret_of(reference[0], kubeconfig, reference[1])
    await apply(management, secret, system)
    say(f"stored its kubeconfig in Secret {system}/{reference[0]}, {_until(parse_strict(kubeconfig))}")
    await _write(management, wish, existing, reference)


async def _existing(management: Client, name: str) -> Json | None:
    try:
        return await management.get(WORKER_CLUSTERS, name)
    except NotFound as error:
        if error.details.get("name"):
            return None
        raise  # there is no such kind


def _namespaces(wish: Wish, existing: Json | None) -> Mapping[str, str] | None:
    """Where its Jobs may come from, and go to: as asked for, else as it is already, else everywhere."""
    if wish.namespaces is not None or wish.every_namespace or existing is None:
        return wish.namespaces
    try:
        return WorkerClusterSpec.read(existing).namespaces
    except SpecError:
        return None


async def _check_identity(management: Client, identity: str, wish: Wish) -> None:
    if await identity_of(management) == identity and not wish.same_cluster:
        raise CommandError(
            f"--kubeconfig names the management cluster itself, not a worker to join as {wish.name}",
            "Name the worker's kubeconfig or --context; --same-cluster makes a cluster its own worker.",
            code=Exit.USAGE,
        )


async def _check_namespaces(worker: Client, wish: Wish, namespaces: Mapping[str, str] | None) -> None:
    there = {each["metadata"]["name"] for each in (await worker.list(resources.NAMESPACES)).items}
    missing = sorted(set((namespaces or {}).values()) - there)
    if missing and not wish.create_namespaces:
        raise CommandError(
            f"worker {wish.name} has no namespace {', '.join(missing)}",
            "Make it there, add --create-namespaces, or send Jobs elsewhere with --namespaces HERE=THERE.",
            code=Exit.REFUSED,
        )
    for name in missing:
        try:
            await worker.create(resources.NAMESPACES, {"metadata": {"name": name}})
        except AlreadyExists:
            continue
        say(f"made namespace {name} there")


async def _has_account(worker: Client, wish: Wish) -> bool:
    """On the management cluster itself an account of that name is the dispatcher's own: it is used as it is."""
    if not wish.same_cluster:
        return False
    try:
        await worker.get(resources.SERVICE_ACCOUNTS, ACCOUNT[1], ACCOUNT[0])
    except NotFound:
        return False
    return True


async def _grant(worker: Client, namespaces: Mapping[str, str] | None, *, account: bool) -> None:
    documents = manifest("worker/worker.yaml")
    await apply_all(worker, [each for each in documents if account or each["kind"] != "ServiceAccount"])
    if namespaces is None:
        await apply_all(worker, manifest("worker/all-namespaces.yaml"))
        say("made the account multimirror there; it may run Jobs in every namespace")
        return
    binding = manifest("worker/namespace.yaml")
    for name in sorted(namespaces.values()):
        await apply_all(worker, binding, name)
    wanted = sorted(namespaces.values())
    say(f"made the account multimirror there; it may run Jobs in {', '.join(wanted)}")
    for where in await _granted_before(worker, set(wanted)):
        say(f"note: an earlier join granted {where}; `kubectl delete` on the worker takes that away")


async def _granted_before(worker: Client, wanted: set[str]) -> list[str]:
    name = manifest("worker/namespace.yaml")[0]["metadata"]["name"]
    found = []
    try:
        everywhere = await worker.list(resources.CLUSTER_ROLE_BINDINGS, field_selector=f"metadata.name={name}")
        bindings = await worker.list(resources.ROLE_BINDINGS, field_selector=f"metadata.name={name}")
    except Forbidden:
        return []  # who joins may bind roles, and need not be able to list them
    found += [f"every namespace (clusterrolebinding {name})"] if everywhere.items else []
    others = sorted({each["metadata"]["namespace"] for each in bindings.items} - wanted)
    return found + [f"namespace {other} (rolebinding {name})" for other in others]


# --- the token --------------------------------------------------------------------------------------------------------


async def _kubeconfig(
    management: Client, worker: Client, access: Access, wish: Wish, where: tuple[str, str, str]
) -> dict[str, Any]:
    system, secret, key = where
    if not wish.new_token:
        kept = await _kept(management, access, wish, (system, secret, key))
        if kept is not None:
            return kept
    token = await _request_token(worker, wish.token_duration)
    return tokens.self_contained(access, token, name=wish.name, server=wish.server)


async def _kept(management: Client, access: Access, wish: Wish, where: tuple[str, str, str]) -> dict[str, Any] | None:
    """The token of an earlier join, where it is still good for half of its time: a join changes nothing in vain."""
    try:
        stored = tokens.kubeconfig_in(await management.get(resources.SECRETS, where[1], where[0]), where[2])
        old = parse_strict(stored or b"")
    except (NotFound, Forbidden, KubeError):
        return None
    end = tokens.ends(old)
    if old.token is None or (end is not None and end < datetime.now(UTC) + wish.token_duration / 2):
        return None
    config = tokens.self_contained(access, old.token, name=wish.name, server=wish.server)
    try:
        async with Client(Connection.strict(config, name=wish.name), timeout=10.0) as client:
            await identity_of(client)
    except ApiError:
        return None
    return config


async def _request_token(worker: Client, duration: timedelta) -> str:
    """From the API, with an end. A server that gives much less time than asked for gives one without an end instead."""
    namespace, account = ACCOUNT
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": int(duration.total_seconds())},
    }
    path, kind = resources.SERVICE_ACCOUNTS.path(namespace, account, "token"), {"Content-Type": "application/json"}
    answer = orjson.loads((await worker.request("POST", path, body=body, headers=kind)).body)
    status = answer["status"]
    left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
    if left < duration * _ENOUGH:
        lasting = await _lasting_token(worker)
        if lasting is not None:
            return lasting
        say(f"note: this cluster gives tokens no more than {_span(left)}; join again before it ends")
    return str(status["token"])


async def _lasting_token(worker: Client) -> str | None:
    """A token in a Secret of the worker, valid as long as the Secret is there; None where nobody fills it in."""
    namespace, account = ACCOUNT
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": TOKEN_SECRET,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "multimirror"},
            "annotations": {"kubernetes.io/service-account.name": account},
        },
    }
    try:
        await apply(worker, secret)
        async with asyncio.timeout(5.0):
            while True:
                found = tokens.kubeconfig_in(await worker.get(resources.SECRETS, TOKEN_SECRET, namespace), "token")
                if found:
                    return found.decode()
                await asyncio.sleep(0.1)
    except (TimeoutError, ApiError):
        return None


async def _try(kubeconfig: Mapping[str, Any], name: str, namespaces: Mapping[str, str] | None) -> Facts:
    """Ask with the account's own token what the dispatcher will ask; roles may take a moment."""
    wanted = None if namespaces is None else sorted(namespaces.values())
    ends = time.monotonic() + _SETTLE
    async with Client(Connection.strict(kubeconfig, name=name), timeout=15.0) as client:
        while True:
            try:
                facts = await check(client, wanted)
            except (Unauthorized, Forbidden):
                if time.monotonic() > ends:
                    raise
            else:
                if not facts.missing or time.monotonic() > ends:
                    return facts
            await asyncio.sleep(0.1)


# --- the management cluster -------------------------------------------------------------------------------------------


def _reference(existing: Json | None, name: str) -> tuple[str, str]:
    """The Secret that the WorkerCluster names already, else one of its own name."""
    if existing is not None:
        try:
            secret = WorkerClusterSpec.read(existing).secret
        except SpecError:
            secret = None
        if secret is not None:
            return secret.name, secret.key
    return f"worker-{name}", "kubeconfig"


async def _system_namespace(management: Client, system: str) -> None:
    try:
        await management.get(resources.NAMESPACES, system)
    except NotFound:
        labels = {"app.kubernetes.io/part-of": "multimirror"}
        await apply(
            management, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": system, "labels": labels}}
        )


async def _write(management: Client, wish: Wish, existing: Json | None, reference: tuple[str, str]) -> None:
    spec: Json = {"kubeconfig": {"secret": {"name": reference[0], "key": reference[1]}}}
    if wish.namespaces is not None or wish.every_namespace:
        spec["namespaces"] = wish.namespaces and [
            {"name": here, "workerNamespace": there} for here, there in sorted(wish.namespaces.items())
        ]
    given = {"labels": dict(wish.labels) or None, "weight": wish.weight, "maxJobs": wish.max_jobs}
    spec |= {key: value for key, value in given.items() if value is not None}
    if existing is not None:
        await management.patch(
            WORKER_CLUSTERS, wish.name, {"spec": spec | {"kubeconfig": {"path": None, **spec["kubeconfig"]}}}
        )
        say(f"WorkerCluster {wish.name} was there already; it is up to date")
        return
    created = {"apiVersion": WORKER_CLUSTERS.api_version, "kind": WORKER_CLUSTERS.kind, "metadata": {"name": wish.name}}
    spec = {key: value for key, value in spec.items() if value is not None}
    await management.create(WORKER_CLUSTERS, {**created, "spec": spec}, field_manager="multimirror-cli")
    say(f"made WorkerCluster {wish.name}")


def _until(access: Access) -> str:
    end = tokens.ends(access)
    return "which does not expire" if end is None else f"good until {end:%Y-%m-%d}"


def _span(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.0f} hours"
