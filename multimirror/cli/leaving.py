"""What `multimirror leave` takes away, each step safe to repeat: copies, WorkerCluster, Secret, the account there."""

import contextlib

from multimirror.api import ORIGIN_LABEL, WORKER_CLUSTERS, SpecError, WorkerClusterSpec
from multimirror.batch import Json
from multimirror.cli.applying import remove
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.joining import ACCOUNT, TOKEN_SECRET
from multimirror.cli.manifests import manifest
from multimirror.cli.reaching import Reached, cluster_named, stored_identity
from multimirror.kube import Client, resources
from multimirror.kube.errors import Conflict, NotFound
from multimirror.kube.resources import JOBS
from multimirror.workers import identity_of


async def remove_copies(management: Client, worker: Reached) -> int:
    """Delete what a drained worker still holds of ours: finished copies whose retention is not over."""
    origin = await identity_of(management)
    count = 0
    async with worker.client() as client:
        mapped = worker.spec.namespaces
        for namespace in sorted(mapped.values()) if mapped is not None else [None]:
            for copy in (await client.list(JOBS, namespace, label_selector=f"{ORIGIN_LABEL}={origin}")).items:
                metadata = copy["metadata"]
                with contextlib.suppress(NotFound, Conflict):
                    await client.delete(
                        JOBS, metadata["name"], metadata["namespace"], propagation="Background", uid=metadata["uid"]
                    )
                    count += 1
    return count


async def forget(management: Client, name: str, system: str) -> None:
    """Delete the WorkerCluster, then its Secret, if join made that and nobody else uses it."""
    cluster = await cluster_named(management, name)
    secret = _secret_of(cluster)
    with contextlib.suppress(NotFound):
        await management.delete(WORKER_CLUSTERS, name)
    others = {_secret_of(each) for each in (await management.list(WORKER_CLUSTERS)).items}
    if secret is None or secret in others:
        return
    with contextlib.suppress(NotFound):
        found = await management.get(resources.SECRETS, secret, system)
        if (found["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == "multimirror":
            await management.delete(resources.SECRETS, secret, system, uid=found["metadata"]["uid"])


def _secret_of(cluster: Json) -> str | None:
    try:
        reference = WorkerClusterSpec.read(cluster).secret
    except SpecError:
        return None
    return reference.name if reference is not None else None


async def check_worker(management: Client, worker: Client, name: str, system: str) -> None:
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


async def clean_worker(worker: Client) -> None:
    """Remove the account, its token, its roles and every binding of them. Their namespace stays: others may use it."""
    binding = manifest("worker/namespace.yaml")
    name = binding[0]["metadata"]["name"]
    for each in (await worker.list(resources.ROLE_BINDINGS, field_selector=f"metadata.name={name}")).items:
        await remove(worker, binding, each["metadata"]["namespace"])
    await remove(worker, manifest("worker/all-namespaces.yaml"))
    await remove(worker, [each for each in manifest("worker/worker.yaml") if each["kind"] != "Namespace"])
    with contextlib.suppress(NotFound):
        await worker.delete(resources.SECRETS, TOKEN_SECRET, ACCOUNT[0])
