"""A Job's copy and its pods, wherever they are: found for explain, logs and events, removed by drain and leave.

As for the dispatcher, labels prove nothing: a copy is what has the uid that is written on its original, or, as long as
none is, what we have signed. Whatever else carries our labels on a worker is not shown, and not deleted.
"""

from dataclasses import dataclass, field
from typing import Final

from multimirror.api import ATTEMPT_LABEL, ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.api.ownership import Signer
from multimirror.api.placement import attempt_of, cluster_of, copy_uid_of
from multimirror.batch import Json, is_finished
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.rows import is_ours, time_of
from multimirror.cli.workers import WorkerConnection, worker_connection
from multimirror.kube import Client
from multimirror.kube.errors import Conflict, NotFound
from multimirror.kube.resources import EVENTS, JOBS, PODS
from multimirror.workers import identity_of
from multimirror.workers.reading import has_sound_metadata

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of a Job on its worker, with its pods. A Job that is not ours is its own: it has its pods itself."""

    cluster: str
    client: Client
    job: Json | None
    """None: there is none (any more)."""
    namespace: str
    pods: tuple[Json, ...] = ()
    events: tuple[Json, ...] = field(default=())

    @property
    def pod_selector(self) -> str:
        assert self.job is not None
        return f"batch.kubernetes.io/controller-uid={self.job['metadata']['uid']}"


def job_name(text: str) -> str:
    """`job/x`, `jobs/x`, `job.batch/x` or `x`."""
    kind, slash, name = text.rpartition("/")
    if slash and kind not in {"job", "jobs", "job.batch", "jobs.batch"}:
        raise CommandError(f"{text!r} is not a Job: write job/NAME", code=Exit.USAGE)
    if not name:
        raise CommandError(f"{text!r} names no Job: write job/NAME", code=Exit.USAGE)
    return name


async def find_job(management: Client, text: str, namespace: str | None) -> Json:
    name, where = job_name(text), namespace or management.connection.namespace
    try:
        return await management.get(JOBS, name, where)
    except NotFound:
        remedy = "`multimirror get jobs -A` lists those of every namespace."
        raise CommandError(f"there is no Job {name} in namespace {where}", remedy, code=Exit.REFUSED) from None


async def worker_of(management: Client, job: Json, system: str) -> WorkerConnection | None:
    """The worker that has it; None for a Job of this cluster's own. Raises CommandError when it has none yet."""
    if not is_ours(job):
        return None
    cluster, metadata = cluster_of(job), job["metadata"]
    if cluster is None:
        problem = f"Job {metadata['name']} has no worker yet"
        remedy = f"`multimirror explain job/{metadata['name']} -n {metadata['namespace']}` says what it waits for."
        raise CommandError(problem, remedy)
    return await worker_connection(management, cluster, system)


async def find_copy(client: Client, job: Json, worker: WorkerConnection | None, *, events: bool = False) -> Copy:
    """`client` is the worker's, or the management cluster's where the Job is its own."""
    metadata = job["metadata"]
    if worker is None:
        copy = Copy("here", client, job, metadata["namespace"])
    else:
        namespace = worker.spec.namespace_for(metadata["namespace"]) or metadata["namespace"]
        found = await copies_of(client, job, namespace, worker.signer)
        copy = Copy(worker.name, client, found[0] if found else None, namespace)
    if copy.job is None:
        return copy
    pods = (await client.list(PODS, copy.namespace, label_selector=copy.pod_selector)).items
    pods.sort(key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]))
    seen = await _events_of_copy(copy) if events else []
    return Copy(copy.cluster, client, copy.job, copy.namespace, tuple(pods), tuple(seen))


async def copies_of(client: Client, job: Json, namespace: str, signer: Signer | None) -> list[Json]:
    """Those of the Job's present attempt that are ours: at most one."""
    selector = f"{ORIGIN_UID_LABEL}={job['metadata']['uid']},{ATTEMPT_LABEL}={attempt_of(job)}"
    found = (await client.list(JOBS, namespace, label_selector=selector)).items
    uid = copy_uid_of(job)
    if uid is not None:
        return [copy for copy in found if copy["metadata"].get("uid") == uid]
    return (await by_us(client, found, signer))[0] if signer is not None and found else []


async def by_us(client: Client, copies: list[Json], signer: Signer) -> tuple[list[Json], list[Json]]:
    """What we have made of that, on the cluster of that client; and the rest."""
    identity = await identity_of(client)
    ours: list[Json] = []
    others: list[Json] = []
    for copy in copies:
        is_ours = has_sound_metadata(copy) and signer.signed(JOBS, identity, copy)
        (ours if is_ours else others).append(copy)
    return ours, others


async def events_of(client: Client, job: Json) -> list[Json]:
    """About one Job, oldest first."""
    metadata = job["metadata"]
    found = await client.list(EVENTS, metadata["namespace"], field_selector=f"involvedObject.uid={metadata['uid']}")
    return sorted(found.items, key=time_of)


async def _events_of_copy(copy: Copy) -> list[Json]:
    """About the copy and its pods, those that are gone already included."""
    assert copy.job is not None
    prefix = copy.job["metadata"]["name"] + "-"
    pods = await copy.client.list(EVENTS, copy.namespace, field_selector="involvedObject.kind=Pod")
    about = [event for event in pods.items if str(event["involvedObject"].get("name", "")).startswith(prefix)]
    return sorted([*await events_of(copy.client, copy.job), *about], key=time_of)


def copy_missing(job: Json, copy: Copy) -> CommandError:
    """Why there is nothing to look at."""
    name = job["metadata"]["name"]
    if is_finished(job.get("status") or {}):
        remedy = "Finished copies stay for the `retention` of the queue; a longer one keeps pods and logs."
        problem = f"the copy of {name} on worker {copy.cluster} was removed after the Job had finished"
        return CommandError(problem, remedy)
    problem = f"worker {copy.cluster} has no copy of {name} now"
    return CommandError(problem, "It is made, or moved: look again in a moment.")


async def delete_copy(client: Client, copy: Json, *, unchanged: bool = False) -> bool:
    """False when it is gone already, or was changed since it was read where it must be `unchanged`."""
    metadata = copy["metadata"]
    try:
        await client.delete(
            JOBS,
            metadata["name"],
            metadata["namespace"],
            propagation="Background",
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"] if unchanged else None,
        )
    except (Conflict, NotFound):
        return False
    return True


async def remove_copies(worker: WorkerConnection) -> int:
    """Delete all that one management cluster has on a worker, with the credentials of its dispatcher. Gives how many.

    What this management cluster has not signed is not touched, whatever labels it carries.
    """
    mapped, signer = worker.spec.namespaces, worker.signer
    if signer is None:
        return 0  # nobody has ever signed anything, or nobody can tell any more
    count = 0
    async with worker.client() as client:
        for namespace in sorted(set(mapped.values())) if mapped is not None else [None]:
            selector = f"{ORIGIN_LABEL}={signer.origin}"
            found = (await client.list(JOBS, namespace, label_selector=selector, limit=_PAGE)).items
            ours, _ = await by_us(client, found, signer)
            for copy in ours:
                count += await delete_copy(client, copy)
    return count
