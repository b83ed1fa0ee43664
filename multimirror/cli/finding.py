"""A Job, its copy and its pods, wherever they are: what explain, logs and events stand on."""

from dataclasses import dataclass, field

from multimirror.api import ATTEMPT_LABEL, ORIGIN_UID_LABEL
from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json, is_finished
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.reaching import Reached, reach
from multimirror.cli.rows import is_ours, time_of
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import EVENTS, JOBS, PODS


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pods of a Job are: a worker, or, for a Job that is not ours, its own cluster."""

    name: str
    client: Client
    job: Json | None
    """The copy, or the Job itself; None: there is none (any more)."""
    namespace: str
    pods: tuple[Json, ...] = ()
    events: tuple[Json, ...] = field(default=())

    @property
    def pod_selector(self) -> str:
        """Selects the pods."""
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
    """The Job, or a sentence."""
    name, where = job_name(text), namespace or management.connection.namespace
    try:
        return await management.get(JOBS, name, where)
    except NotFound:
        remedy = "`multimirror get jobs -A` lists those of every namespace."
        raise CommandError(f"there is no Job {name} in namespace {where}", remedy, code=Exit.REFUSED) from None


async def worker_of(management: Client, job: Json, system: str) -> Reached | None:
    """The worker that has it; None for a Job of this cluster's own. Raises CommandError when it has none yet."""
    if not is_ours(job):
        return None
    cluster, metadata = cluster_of(job), job["metadata"]
    if cluster is None:
        problem = f"Job {metadata['name']} has no worker yet"
        remedy = f"`multimirror explain job/{metadata['name']} -n {metadata['namespace']}` says what it waits for."
        raise CommandError(problem, remedy)
    return await reach(management, cluster, system)


async def find_place(client: Client, job: Json, worker: Reached | None, *, events: bool = False) -> Place:
    """Look there. `client` is the worker's, or the management cluster's where the Job is its own."""
    metadata = job["metadata"]
    if worker is None:
        place = Place("here", client, job, metadata["namespace"])
    else:
        namespace = worker.spec.namespace_for(metadata["namespace"]) or metadata["namespace"]
        selector = f"{ORIGIN_UID_LABEL}={metadata['uid']},{ATTEMPT_LABEL}={attempt_of(job)}"
        copies = (await client.list(JOBS, namespace, label_selector=selector)).items
        place = Place(worker.name, client, copies[0] if copies else None, namespace)
    if place.job is None:
        return place
    pods = (await client.list(PODS, place.namespace, label_selector=place.pod_selector)).items
    pods.sort(key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]))
    found = await events_there(place) if events else []
    return Place(place.name, client, place.job, place.namespace, tuple(pods), tuple(found))


async def events_of(client: Client, job: Json) -> list[Json]:
    """About one Job, oldest first."""
    metadata = job["metadata"]
    found = await client.list(EVENTS, metadata["namespace"], field_selector=f"involvedObject.uid={metadata['uid']}")
    return sorted(found.items, key=time_of)


async def events_there(place: Place) -> list[Json]:
    """About the copy and its pods, those that are gone already included."""
    assert place.job is not None
    prefix = place.job["metadata"]["name"] + "-"
    pods = await place.client.list(EVENTS, place.namespace, field_selector="involvedObject.kind=Pod")
    about = [event for event in pods.items if str(event["involvedObject"].get("name", "")).startswith(prefix)]
    return sorted([*await events_of(place.client, place.job), *about], key=time_of)


def gone(job: Json, place: Place) -> CommandError:
    """Why there is nothing to look at."""
    name = job["metadata"]["name"]
    if is_finished(job.get("status") or {}):
        remedy = "Finished copies stay for the `retention` of the queue; a longer one keeps pods and logs."
        return CommandError(f"the copy of {name} on worker {place.name} was removed after the Job had finished", remedy)
    return CommandError(
        f"worker {place.name} has no copy of {name} now", "It is made, or moved: look again in a moment."
    )
