"""What the scenarios of queues that share have in common: a cohort on a stage, Jobs of so many cpu, and what is told.

The queues of a cohort are those of teams: `a` is the stage's own, `b` and others are made here. Jobs run until they are
told to end.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from clusters.nodes import PREFIX
from multimirror.api import (
    COHORTS,
    MIRROR_QUEUES,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PRIORITY_LABEL,
    QUEUE_LABEL,
)
from multimirror.kube import Resource
from multimirror.kube.resources import EVENTS, PODS
from tests.e2e.dispatching import Stage, cluster_of, running, until
from tests.waiting import eventually

Json = dict[str, Any]
Change = Callable[[Json], None]


def note(job: Json, annotation: str) -> str | None:
    found: str | None = (job["metadata"].get("annotations") or {}).get(annotation)
    return found


def is_marked(job: Json) -> bool:
    return note(job, PREEMPTED_ANNOTATION) is not None


def waits(job: Json) -> bool:
    return cluster_of(job) is None


def pods_at_once(number: int) -> Change:
    """A Job of so many pods, all at once."""

    def change(job: Json) -> None:
        job["spec"] |= {"completionMode": "Indexed", "completions": number, "parallelism": number}

    return change


def stops_after(seconds: int, *, grace: int = 10) -> Change:
    """Its pods go on for so long after they were told to stop."""

    def change(job: Json) -> None:
        template = job["spec"]["template"]
        template["spec"]["terminationGracePeriodSeconds"] = grace
        template["metadata"]["annotations"][f"{PREFIX}ignore-sigterm"] = f"{seconds}s"

    return change


def stops_at_once(job: Json) -> None:
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0


class TakenBack(NamedTuple):
    """Of two Jobs that borrowed."""

    victim: str
    other: str
    worker: str
    """The victim's."""


class Cohort:
    """The stage's queue is team a's; there is a second one, of team b, and there may be more."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.a, self.b = stage, stage.queue, f"{stage.queue}-b"
        self.name = f"cohort-{stage.tag}"

    # --- queues and cohorts

    async def share(self, own: str = "1", **more: Any) -> None:
        """Both teams have the same."""
        quota = {"resources": {"cpu": own}, **more.pop("quota", {})}
        spec = {"cohort": self.name, "quota": quota, **more}
        await self.stage.set_queue(**spec)
        mine = (await self.stage.management.get(MIRROR_QUEUES, self.a))["spec"]
        await self._make(MIRROR_QUEUES, self.b, mine)

    async def another(self, name: str, own: str = "1", **more: Any) -> str:
        """A queue beside those two, with the workers of the first; in no cohort unless one is named."""
        mine = (await self.stage.management.get(MIRROR_QUEUES, self.a))["spec"]
        kept = {key: mine[key] for key in ("workers", "retention", "onWorkerLost", "fence") if key in mine}
        quota = {"resources": {"cpu": own}, **more.pop("quota", {})}
        queue = f"{self.stage.queue}-{name}"
        await self._make(MIRROR_QUEUES, queue, {**kept, "quota": quota, **more})
        return queue

    async def pool(self, cpu: str, name: str | None = None, **spec: Any) -> str:
        """A Cohort object with quota of its own."""
        name = name or self.name
        await self._make(COHORTS, name, {"quota": {"resources": {"cpu": cpu}}, **spec})
        return name

    async def change(self, queue: str, **spec: Any) -> None:
        await self.stage.management.patch(MIRROR_QUEUES, queue, {"spec": spec})

    async def _make(self, resource: Resource, name: str, spec: Json) -> None:
        made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
        await self.stage.management.create(resource, made)
        self.stage.made.append((resource, name))

    # --- Jobs

    async def submit(
        self,
        name: str,
        queue: str,
        *,
        cpu: str = "1",
        priority: int | None = None,
        labels: Json | None = None,
        change: Change | None = None,
        **behaviour: str,
    ) -> Json:
        def changed(job: Json) -> None:
            more = {} if priority is None else {PRIORITY_LABEL: str(priority)}
            job["metadata"]["labels"] |= {QUEUE_LABEL: queue, **more, **(labels or {})}
            (container,) = job["spec"]["template"]["spec"]["containers"]
            container["resources"] = {"requests": {"cpu": cpu}}
            if change is not None:
                change(job)

        return await self.stage.submit(name, change=changed, never_finish="true", **behaviour)

    async def run(self, name: str, queue: str, **more: Any) -> Json:
        await self.submit(name, queue, **more)
        return await self.stage.until(running, name)

    async def b_borrows(self, **more: Any) -> tuple[str, str]:
        """Two Jobs of team b run: one on what team a does not use."""
        for name in ("b-1", "b-2"):
            await self.run(name, self.b, **more)
        return "b-1", "b-2"

    async def a_takes_back(self, **more: Any) -> TakenBack:
        """A Job of team a wants what team b has borrowed, and one of team b is told to go. `more`: of team b's Jobs."""
        borrowers = await self.b_borrows(**more)
        await self.submit("owner", self.a)
        victim = await self.victim(*borrowers)
        (other,) = set(borrowers) - {victim}
        return TakenBack(victim, other, await self.worker_of(victim))

    async def finish(self, *names: str) -> None:
        """One after the other, when they run."""
        for name in names:
            await self.stage.until(running, name)
            await self.stage.finish(name)
            await self.stage.done(name)

    # --- seeing

    async def victim(self, *names: str) -> str:
        """The first that is told to go; it may be gone by now, unless its pods take their time."""

        async def told() -> list[str]:
            return [name for name in names if note(await self.stage.job(name), PREEMPTED_BY_ANNOTATION) is not None]

        found: list[str] = await eventually(told)
        assert len(found) == 1
        return found[0]

    async def waiting(self, *names: str) -> list[str]:
        """Those of them that have no worker."""
        return [name for name in names if waits(await self.stage.job(name))]

    async def told(self, reason: str, sentence: str, name: str) -> str:
        """What the user of a Job is told, once it is this: a regular expression, as it matches somewhere in it."""
        messages: list[str] = []

        async def find() -> str | None:
            events = (await self.stage.management.list(EVENTS, self.stage.namespace)).items
            ours = [each for each in events if each["involvedObject"]["name"] == name and each["reason"] == reason]
            messages[:] = [each["message"] for each in ours]
            return next((each for each in messages if re.search(sentence, each)), None)

        try:
            found = await eventually(find)
        except AssertionError:
            raise AssertionError(f"nobody told {name} {reason}: {sentence!r}, but {messages}") from None
        assert found is not None
        return found

    async def queue_condition(self, queue: str, kind: str, status: str = "True") -> str:
        """The message of a queue's condition, when it has that status."""

        def found(obj: Json) -> list[str]:
            conditions = (obj.get("status") or {}).get("conditions") or ()
            return [str(c["message"]) for c in conditions if (c["type"], c["status"]) == (kind, status)]

        obj = await until(self.stage.management, MIRROR_QUEUES, None, queue, lambda each: bool(found(each)))
        return found(obj)[0]

    async def head(self, queue: str, reason: str) -> Json:
        """The first of a queue that waits, as the queue's status has it, when it waits for that reason."""

        def found(obj: Json) -> Json:
            return (obj.get("status") or {}).get("head") or {}

        obj = await until(
            self.stage.management, MIRROR_QUEUES, None, queue, lambda each: found(each).get("reason") == reason
        )
        return found(obj)

    async def live_pods(self, worker: str, job: str) -> list[str]:
        """Those of a Job on a worker that have not ended."""
        found = (
            await self.stage.workers[worker].list(PODS, self.stage.namespace, label_selector=f"job-name={job}")
        ).items
        return [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") in ("Pending", "Running")]

    async def worker_of(self, name: str) -> str:
        worker = cluster_of(await self.stage.job(name))
        assert worker is not None
        return worker

    def lives_of(self, name: str) -> list[Json]:
        """Everything that the original of a Job has been, in order."""
        seen = (job for what, job in self.stage.history.jobs("management") if what != "DELETED")
        return [job for job in seen if job["metadata"]["name"] == name]
