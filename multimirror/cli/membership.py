"""A cluster becomes a worker, and is one no more: its Secret and its WorkerCluster on the management cluster.

On join the token is tried before it is stored, with the questions that the dispatcher will ask. Every step may be
repeated, and repairs what an earlier one left. Nothing is ever taken away by a join: one with fewer namespaces says
what an earlier one granted.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from multimirror.api import ORIGIN_LABEL, WORKER_CLUSTERS, SpecError, WorkerClusterSpec, is_protected
from multimirror.api.worker_clusters import CapacityMode
from multimirror.batch import Json
from multimirror.cli import credentials
from multimirror.cli.account_trial import try_account
from multimirror.cli.apply import FIELD_MANAGER, apply
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.progress import say
from multimirror.cli.worker_account import grant, grant_pods, has_account, lasting_token, request_token, revoke
from multimirror.cli.workers import cluster_named, reachable, stored_identity
from multimirror.kube import ApiError, Client, KubeError, resources
from multimirror.kube.errors import AlreadyExists, NotFound
from multimirror.kube.kubeconfig import Access, parse_strict
from multimirror.kube.resources import JOBS
from multimirror.workers.probe import Facts, identity_of, version_of
from multimirror.workers.tokens import Slots, claims_of

_PART_OF: Final = {"app.kubernetes.io/part-of": "multimirror"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """None: as it is, or as it is by default."""

    name: str
    namespaces: Mapping[str, str] | None = None
    every_namespace: bool = False
    create_namespaces: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int | None = None
    max_jobs: int | None = None
    free_capacity: bool = False
    server: str | None = None
    token_duration: timedelta = timedelta(hours=24)
    new_token: bool = False
    lasting_token: bool = False
    same_cluster: bool = False
    patience: float = 0.0
    """Seconds for a worker that is slow to answer what its account may do."""


@dataclass(frozen=True, slots=True)
class _SecretKey:
    namespace: str
    name: str
    key: str


async def join(management: Client, worker: Client, access: Access, options: JoinOptions, system: str) -> None:
    """Make the cluster behind `worker` a worker of that name; returns when the WorkerCluster is there."""
    existing = await _existing(management, options.name)
    namespaces = _namespaces(options, existing, system)
    identity, version = await asyncio.gather(identity_of(worker), version_of(worker))
    await _check_identity(management, identity, options)
    if existing is not None and await stored_identity(management, options.name, system) not in {None, identity}:
        remedy = f"Choose another name, or `multimirror leave {options.name}` first: its Jobs would be lost."
        raise CommandError(f"{options.name} is the name of another cluster", remedy, code=Exit.REFUSED)
    say(f"worker {options.name}: Kubernetes {version} at {access.server}")
    await _check_namespaces(worker, options, namespaces)
    # On the management cluster itself an account of that name is the dispatcher's own: it is used as it is.
    slots = Slots.of(await identity_of(management), options.name)
    await grant(worker, namespaces, slots, account=not (options.same_cluster and await has_account(worker)))
    if options.free_capacity:
        await grant_pods(worker)
    secret = _secret_key(existing, options.name, system)
    await _system_namespace(management, system)
    stored, given_before = await _stored(management, secret)
    options = replace(options, server=options.server or given_before)
    kubeconfig = await _kubeconfig(worker, access, options, stored, slots)
    facts = await _probe(access, kubeconfig, options, namespaces)
    if facts.missing:
        problem = f"the account may not {', '.join(facts.missing)} on worker {options.name}"
        raise CommandError(problem, "Does something on that cluster take its roles away?", code=Exit.REFUSED)
    await apply(management, credentials.secret_of(secret.name, kubeconfig, secret.key, joined_by=access), system)
    end = credentials.expiry(parse_strict(kubeconfig))
    until = "which does not expire" if end is None else f"good until {end:%Y-%m-%d %H:%M} UTC, and renewed before"
    say(f"stored its kubeconfig in Secret {system}/{secret.name}, {until}")
    if options.server not in {None, access.server} and access.server.startswith("https://"):
        before = ", as before" if options.server == given_before else ""
        say(f"the dispatcher uses {options.server}{before}, which was not tried from here: it tries that itself")
    await _revoke_before(worker, stored, kubeconfig, slots)
    await _write(management, options, existing, secret)


async def _existing(management: Client, name: str) -> Json | None:
    try:
        return await management.get(WORKER_CLUSTERS, name)
    except NotFound as error:
        if error.details.get("name"):
            return None
        raise  # there is no such kind


def _namespaces(options: JoinOptions, existing: Json | None, system: str) -> Mapping[str, str] | None:
    """Where its Jobs may come from, and go to (None: everywhere): as asked for, else as it is already."""
    refused = sorted(
        there for there in set((options.namespaces or {}).values()) if is_protected(there) or there == system
    )
    if refused:
        problem = f"no Job ever goes to namespace {', '.join(refused)} of a worker"
        raise CommandError(problem, "Send them elsewhere with --namespaces HERE=THERE.", code=Exit.USAGE)
    if options.namespaces is not None or options.every_namespace:
        return options.namespaces
    remedy = "Name them with --namespaces team-a,team-b=research, or say --all-namespaces."
    if existing is None:
        problem = f"whose Jobs may go to {options.name}? Its account gets rights in those namespaces"
        raise CommandError(problem, remedy, code=Exit.USAGE)
    try:
        return WorkerClusterSpec.read(existing).namespaces
    except SpecError as error:
        raise CommandError(f"WorkerCluster {options.name} cannot be read: {error}", remedy, code=Exit.USAGE) from error


async def _check_identity(management: Client, identity: str, options: JoinOptions) -> None:
    if await identity_of(management) == identity and not options.same_cluster:
        raise CommandError(
            f"--kubeconfig names the management cluster itself, not a worker to join as {options.name}",
            "Name the worker's kubeconfig or --context; --same-cluster makes a cluster its own worker.",
            code=Exit.USAGE,
        )


async def _check_namespaces(worker: Client, options: JoinOptions, namespaces: Mapping[str, str] | None) -> None:
    there = {each["metadata"]["name"] for each in (await worker.list(resources.NAMESPACES)).items}
    missing = sorted(set((namespaces or {}).values()) - there)
    if missing and not options.create_namespaces:
        raise CommandError(
            f"worker {options.name} has no namespace {', '.join(missing)}",
            "Make it there, add --create-namespaces, or send Jobs elsewhere with --namespaces HERE=THERE.",
            code=Exit.REFUSED,
        )
    for name in missing:
        with contextlib.suppress(AlreadyExists):
            await worker.create(resources.NAMESPACES, {"metadata": {"name": name}})
            say(f"made namespace {name} there")


async def _stored(management: Client, secret: _SecretKey) -> tuple[Access | None, str | None]:
    """What an earlier join has stored, and the address that was given to it with --server."""
    try:
        found = await management.get(resources.SECRETS, secret.name, secret.namespace)
        access = parse_strict(credentials.kubeconfig_in(found, secret.key) or b"")
    except KubeError:
        return None, None
    beside = credentials.joined_by(found, access)
    return access, access.server if beside is not None and beside != access.server else None


async def _kubeconfig(
    worker: Client, access: Access, options: JoinOptions, stored: Access | None, slots: Slots
) -> dict[str, Any]:
    if not options.new_token and stored is not None:
        kept = await _kept(access, options, stored, slots)
        if kept is not None:
            return kept
    if options.lasting_token:
        say("note: a token that never ends was asked for; whoever gets hold of it has it until `leave --cleanup`")
        token = await lasting_token(worker)
    else:
        token = await request_token(worker, slots, options.token_duration, before=_slot_of(stored))
    return credentials.self_contained(access, token, name=options.name, server=options.server)


async def _kept(access: Access, options: JoinOptions, stored: Access, slots: Slots) -> dict[str, Any] | None:
    """The token of an earlier join, where it is of the kind that is wanted and good: a join changes nothing in vain."""
    claims = claims_of(stored.token)
    if claims is None or stored.token is None:
        return None
    if options.lasting_token != (claims.expires is None):
        return None
    if not options.lasting_token and claims.secret not in slots:
        return None  # of an earlier version: it could be neither renewed nor revoked
    if claims.expires is not None and claims.expires - time.time() < (claims.expires - claims.issued) / 2:
        return None  # nobody has renewed it in time
    config = credentials.self_contained(access, stored.token, name=options.name, server=options.server)
    try:
        trial = credentials.trial_connection(access, stored.token, name=options.name, server=options.server)
        async with Client(trial, timeout=10.0) as client:
            await identity_of(client)
    except ApiError:
        return None
    return config


def _slot_of(stored: Access | None) -> str | None:
    claims = claims_of(stored.token) if stored is not None else None
    return claims.secret if claims is not None else None


async def _revoke_before(worker: Client, stored: Access | None, kubeconfig: Mapping[str, Any], slots: Slots) -> None:
    """The other slot is nobody's: whatever token there was, or was made from one that was stolen, is good no more."""
    token = parse_strict(kubeconfig).token
    if stored is None or stored.token == token:
        return
    claims = claims_of(token)
    in_use = claims.secret if claims is not None else None
    await revoke(worker, [slot for slot in slots.names if slot != in_use])
    before = claims_of(stored.token)
    if before is not None and before.secret in slots:
        say("revoked the token that was stored before")
    elif before is not None:
        say("note: the token that was stored before is not bound to a Secret: only `leave --cleanup` revokes it")


async def _probe(
    access: Access, kubeconfig: Mapping[str, Any], options: JoinOptions, namespaces: Mapping[str, str] | None
) -> Facts:
    """By the address that we have come by: the dispatcher's own is for it to try, from where it is."""
    wanted = parse_strict(kubeconfig)
    assert wanted.token is not None, "it has just been put there"
    trial = credentials.trial_connection(access, wanted.token, name=options.name, server=wanted.server)
    targets = None if namespaces is None else sorted(namespaces.values())
    async with Client(trial, timeout=15.0) as client:
        return await try_account(client, targets, patience=options.patience)


def _secret_key(existing: Json | None, name: str, system: str) -> _SecretKey:
    """The Secret that the WorkerCluster names already, else one of its own name."""
    if existing is not None:
        with contextlib.suppress(SpecError):
            secret = WorkerClusterSpec.read(existing).secret
            if secret is not None:
                return _SecretKey(system, secret.name, secret.key)
    return _SecretKey(system, f"worker-{name}", "kubeconfig")


async def _system_namespace(management: Client, system: str) -> None:
    try:
        await management.get(resources.NAMESPACES, system)
    except NotFound:
        metadata = {"name": system, "labels": _PART_OF}
        await apply(management, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


async def _write(management: Client, options: JoinOptions, existing: Json | None, secret: _SecretKey) -> None:
    spec: Json = {"kubeconfig": {"secret": {"name": secret.name, "key": secret.key}}}
    if options.namespaces is not None or options.every_namespace:
        spec["namespaces"] = options.namespaces and [
            {"name": here, "workerNamespace": there} for here, there in sorted(options.namespaces.items())
        ]
    given = {"labels": dict(options.labels) or None, "weight": options.weight, "maxJobs": options.max_jobs}
    spec |= {key: value for key, value in given.items() if value is not None}
    if options.free_capacity:
        spec["capacity"] = {"mode": CapacityMode.FREE.value, **({"resources": None} if existing is not None else {})}
    if existing is not None:
        spec["kubeconfig"] = {"path": None, **spec["kubeconfig"]}
        await management.patch(WORKER_CLUSTERS, options.name, {"spec": spec})
        say(f"WorkerCluster {options.name} was there already; it is up to date")
        return
    created = {
        "apiVersion": WORKER_CLUSTERS.api_version,
        "kind": WORKER_CLUSTERS.kind,
        "metadata": {"name": options.name},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    await management.create(WORKER_CLUSTERS, created, field_manager=FIELD_MANAGER)
    say(f"made WorkerCluster {options.name}")


async def forget(management: Client, name: str, system: str) -> None:
    """Delete the WorkerCluster, then its Secret, if join made that and nobody else uses it. Its token is revoked first:
    as long as the Secret is there, that can be done again."""
    cluster = await cluster_named(management, name)
    secret = _secret_of(cluster)
    with contextlib.suppress(NotFound):
        await management.delete(WORKER_CLUSTERS, name)
    others = {_secret_of(each) for each in (await management.list(WORKER_CLUSTERS)).items}
    if secret is None or secret in others:
        return
    with contextlib.suppress(NotFound):
        found = await management.get(resources.SECRETS, secret, system)
        if _PART_OF.items() <= (found["metadata"].get("labels") or {}).items():
            await _revoke_stored(management, name, found, cluster, system)
            await management.delete(resources.SECRETS, secret, system, uid=found["metadata"]["uid"])


async def _revoke_stored(management: Client, name: str, secret: Json, cluster: Json, system: str) -> None:
    """With the token itself: an administrator of the worker is not needed."""
    reference = WorkerClusterSpec.read(cluster).secret
    assert reference is not None, "it names the Secret"
    by_hand = "`kubectl delete serviceaccount multimirror -n multimirror-system` on the worker revokes all of them."
    try:
        access, connection = reachable(management, name, secret, reference.key, system)
        claims = claims_of(access.token)
        own = claims.secret if claims is not None else None
        slots = Slots.of(await identity_of(management), name)
        if own not in slots:
            say(f"note: the credential of {name} cannot be revoked from here. {by_hand}")
            return
        async with Client(connection, timeout=10.0) as client:
            await revoke(client, sorted(slots.names, key=lambda slot: slot == own))
    except (KubeError, TimeoutError) as error:
        say(f"note: the token of {name} was not revoked: {error}. {by_hand}")
    else:
        say(f"revoked the token of {name}")


def _secret_of(cluster: Json) -> str | None:
    try:
        reference = WorkerClusterSpec.read(cluster).secret
    except SpecError:
        return None
    return reference.name if reference is not None else None


async def check_cleanup(management: Client, worker: Client, name: str, system: str) -> None:
    """Before anything is done: is that kubeconfig this worker's, and does no other management cluster use it?"""
    await cluster_named(management, name)
    identity = await identity_of(worker)
    if await stored_identity(management, name, system) not in {None, identity}:
        problem = f"--kubeconfig names another cluster than worker {name}"
        raise CommandError(problem, "Name the worker's own kubeconfig or --context.", code=Exit.USAGE)
    ours = await identity_of(management)
    if identity == ours:
        problem = f"{name} is the management cluster itself, and the account there the dispatcher's own"
        raise CommandError(problem, "Leave without --cleanup.", code=Exit.REFUSED)
    found = (await worker.list(JOBS, label_selector=ORIGIN_LABEL)).items
    if any(copy["metadata"]["labels"][ORIGIN_LABEL] != ours for copy in found):
        problem = f"another management cluster has Jobs on {name}, with the same account"
        raise CommandError(problem, "Leave without --cleanup; the last one to leave cleans up.", code=Exit.REFUSED)
