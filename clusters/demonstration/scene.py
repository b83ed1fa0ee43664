"""What the clusters say: a picture of now, and the happenings on the way, both read off objects as caches tell them.

`read_job` and `happenings` are pure. The Scene holds the caches' newest objects and wakes whoever shows them; it asks
no cluster anything.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from clusters.demonstration.workload import CRON_JOB
from multimirror.api import ATTEMPT_ANNOTATION, ATTEMPT_LABEL, CLUSTER_ANNOTATION, CONNECTED, QUEUE_LABEL
from multimirror.batch import Json, find_condition, is_complete, is_failed, is_finished
from multimirror.kube import Change

_KEPT: Final = 200


class Phase(StrEnum):
    """Where a Job is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """One Job, as much of it as is shown."""

    name: str
    queue: str
    phase: Phase
    cluster: str | None
    attempt: int
    active: int
    succeeded: int
    completions: int | None

    @property
    def over(self) -> bool:
        """It has ended."""
        return self.phase in (Phase.DONE, Phase.FAILED)

    @property
    def pods(self) -> str:
        """How many of them are done."""
        return f"{self.succeeded}/{self.completions or 1}"


@dataclass(frozen=True, slots=True)
class CopyView:
    """A Job on a worker."""

    name: str
    attempt: int
    over: bool


class Tone(StrEnum):
    """How a happening is to be seen."""

    PLAIN = "plain"
    GOOD = "good"
    MOVED = "moved"
    BAD = "bad"
    STORY = "story"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth a line."""

    second: float
    who: str
    what: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One worker."""

    name: str
    connected: bool
    lost_for: float | None
    running: Sequence[JobView]
    over: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue."""

    name: str
    placement: str
    quota: int | None
    waiting: int
    running: int
    over: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is shown of one moment."""

    second: float
    title: str
    clusters: Sequence[ClusterView]
    queues: Sequence[QueueView]
    jobs: Sequence[JobView]
    happenings: Sequence[Happening]

    @property
    def phases(self) -> Counter[Phase]:
        """How many Jobs are in each."""
        return Counter(job.phase for job in self.jobs)

    @property
    def moved(self) -> int:
        """Jobs that were given to a second worker."""
        return sum(1 for job in self.jobs if job.attempt > 1)


def read_job(job: Json) -> JobView:
    """Pure."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    annotations = metadata.get("annotations") or {}
    cluster = annotations.get(CLUSTER_ANNOTATION)
    return JobView(
        name=metadata["name"],
        queue=(metadata.get("labels") or {}).get(QUEUE_LABEL, ""),
        phase=_phase(spec, status, cluster),
        cluster=cluster,
        attempt=int(annotations.get(ATTEMPT_ANNOTATION, 0)),
        active=status.get("active") or 0,
        succeeded=status.get("succeeded") or 0,
        completions=spec.get("completions"),
    )


def _phase(spec: Json, status: Json, cluster: str | None) -> Phase:
    if is_complete(status):
        return Phase.DONE
    if is_failed(status):
        return Phase.FAILED
    if cluster is None:
        return Phase.WAITING
    return Phase.SUSPENDED if spec.get("suspend") else Phase.RUNNING


def happenings(change: Change, second: float) -> Iterator[Happening]:
    """What a change of a Job on the management cluster means to people. Pure."""
    if change.new is None:
        return
    new = read_job(change.new)
    who = new.name
    if change.old is None:
        if new.name.startswith(f"{CRON_JOB}-") and not change.initial:
            yield Happening(second, who, f"created by the CronJob {CRON_JOB}")
        return
    old = read_job(change.old)
    if new.over:
        if not old.over:
            yield Happening(second, who, *_ending(new, change.new["status"]))
        return
    if new.cluster != old.cluster:
        if new.cluster is None:
            yield Happening(second, who, f"taken away from {old.cluster}: it cannot be reached", Tone.MOVED)
        elif new.attempt > 1:
            yield Happening(second, who, f"moved to {new.cluster}, attempt {new.attempt}", Tone.MOVED)
        else:
            yield Happening(second, who, f"placed on {new.cluster}")
    elif new.phase is Phase.SUSPENDED and old.phase is Phase.RUNNING:
        yield Happening(second, who, "suspended by its user: its pods stop")
    elif new.phase is Phase.RUNNING and old.phase is Phase.SUSPENDED:
        yield Happening(second, who, "resumed by its user")
    before, after = ((each.get("status") or {}).get("failed") or 0 for each in (change.old, change.new))
    if after > before:
        yield Happening(second, who, f"a pod failed on {new.cluster} and is tried again", Tone.BAD)


def _ending(job: JobView, status: Json) -> tuple[str, Tone]:
    kind = "Complete" if job.phase is Phase.DONE else "Failed"
    condition = find_condition(status.get("conditions") or (), kind) or {}
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if kind == "Failed":
        return f"failed on {job.cluster}: {reason}: {message}", Tone.BAD
    why = ", by its success policy" if reason == "SuccessPolicy" else ""
    return f"done on {job.cluster}{why}", Tone.GOOD


class Scene:
    """Follows caches: give it their changes."""

    def __init__(self, title: str, workers: Sequence[str]) -> None:
        self.jobs: dict[str, JobView] = {}
        """The originals by name, as they were last seen."""
        self.copies: dict[str, dict[str, CopyView]] = {worker: {} for worker in workers}
        """What is on each worker, by uid."""
        self.stale_removed = 0
        """Copies of earlier attempts that were seen to go."""
        self.listeners: list[Callable[[Happening | None], None]] = []
        """Told of every happening, and (None) whenever something has changed."""
        self._title, self._began = title, time.monotonic()
        self._connected: dict[str, bool] = dict.fromkeys(workers, False)
        self._lost: dict[str, float] = {}
        self._queues: dict[str, Json] = {}
        self._happenings: deque[Happening] = deque(maxlen=_KEPT)
        self._live_pods: dict[str, dict[str, str]] = {worker: {} for worker in workers}  # uid: uid of the copy

    @property
    def second(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def picture(self) -> Picture:
        """Now."""
        jobs, now = tuple(self.jobs.values()), self.second
        return Picture(
            second=now,
            title=self._title,
            clusters=tuple(self._cluster(name, jobs, now) for name in self._connected),
            queues=tuple(_queue(name, spec, jobs) for name, spec in self._queues.items()),
            jobs=jobs,
            happenings=tuple(self._happenings),
        )

    def tell(self, who: str, what: str, tone: Tone = Tone.STORY) -> None:
        """Something that no cluster says."""
        self._happened(Happening(self.second, who, what, tone))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds; it is asked whenever something has changed."""
        news = asyncio.Event()
        listener = lambda _: news.set()  # noqa: E731 - it is given away and taken back by this name
        self.listeners.append(listener)
        try:
            while not condition():
                await news.wait()
                news.clear()
        finally:
            self.listeners.remove(listener)

    def connected(self, worker: str) -> bool:
        """Whether the dispatcher says that it reaches it."""
        return self._connected[worker]

    def is_quiet(self, worker: str) -> bool:
        """Every copy that has ended there is known to have, and every other one has a pod that is not over."""
        running = set(self._live_pods[worker].values())
        for uid, copy in self.copies[worker].items():
            job = self.jobs.get(copy.name)
            if not (job is not None and job.over if copy.over else uid in running):
                return False
        return True

    def stale(self, worker: str) -> list[CopyView]:
        """Copies of earlier attempts that are still there."""
        return [copy for copy in self.copies[worker].values() if self._is_stale(copy)]

    def _is_stale(self, copy: CopyView) -> bool:
        job = self.jobs.get(copy.name)
        return job is not None and copy.attempt < job.attempt

    # --- what caches tell

    def job_changed(self, change: Change) -> None:
        """On the management cluster."""
        view = read_job(change.object)
        if change.new is None:
            self.jobs.pop(view.name, None)
        else:
            self.jobs[view.name] = view
        for happening in happenings(change, self.second):
            self._happened(happening)
        self._changed()

    def copy_changed(self, worker: str, change: Change) -> None:
        """A Job on a worker."""
        metadata, copies = change.object["metadata"], self.copies[worker]
        if change.new is not None and "deletionTimestamp" not in metadata:
            attempt = int((metadata.get("labels") or {}).get(ATTEMPT_LABEL, 0))
            copies[metadata["uid"]] = CopyView(metadata["name"], attempt, is_finished(change.new.get("status") or {}))
        elif (gone := copies.pop(metadata["uid"], None)) is not None and self._is_stale(gone):
            self.stale_removed += 1
            self._happened(Happening(self.second, gone.name, f"stale copy removed from {worker}", Tone.MOVED))
        self._changed()

    def pod_changed(self, worker: str, change: Change) -> None:
        """On a worker."""
        metadata, pods = change.object["metadata"], self._live_pods[worker]
        over = change.new is None or (change.new.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        for owner in metadata.get("ownerReferences") or ():
            if over:
                pods.pop(metadata["uid"], None)
            else:
                pods[metadata["uid"]] = owner["uid"]
        self._changed()

    def cluster_changed(self, change: Change) -> None:
        """A WorkerCluster."""
        name = change.object["metadata"]["name"]
        conditions = (change.object.get("status") or {}).get("conditions") or ()
        condition = find_condition(conditions, CONNECTED) or {}
        before, now = self._connected.get(name, False), condition.get("status") == "True"
        self._connected[name] = now
        if before and not now:
            self._lost[name] = self.second
            self._happened(Happening(self.second, name, f"LOST: {condition.get('message', '')}", Tone.BAD))
        elif now and self._lost.pop(name, None) is not None:
            self._happened(Happening(self.second, name, "is back", Tone.GOOD))
        self._changed()

    def queue_changed(self, change: Change) -> None:
        """A MirrorQueue."""
        self._queues[change.object["metadata"]["name"]] = change.object["spec"]
        self._changed()

    def _happened(self, happening: Happening) -> None:
        self._happenings.append(happening)
        for listener in tuple(self.listeners):
            listener(happening)

    def _changed(self) -> None:
        for listener in tuple(self.listeners):
            listener(None)

    def _cluster(self, name: str, jobs: Sequence[JobView], now: float) -> ClusterView:
        here = [job for job in jobs if job.cluster == name]
        since = self._lost.get(name)
        return ClusterView(
            name=name,
            connected=self._connected[name],
            lost_for=None if since is None else now - since,
            running=tuple(job for job in here if not job.over),
            over=sum(1 for job in here if job.over),
        )


def _queue(name: str, spec: Json, jobs: Sequence[JobView]) -> QueueView:
    ours = [job for job in jobs if job.queue == name]
    return QueueView(
        name=name,
        placement=spec.get("placement", "Spread"),
        quota=(spec.get("quota") or {}).get("jobs"),
        waiting=sum(1 for job in ours if job.phase is Phase.WAITING),
        running=sum(1 for job in ours if job.phase in (Phase.RUNNING, Phase.SUSPENDED)),
        over=sum(1 for job in ours if job.over),
    )
