"""One sync of one Job: look, decide, act on pods, write down, release finalizers, write down again.

The order of the API calls is what makes a crash harmless: pods first, then the status that lists what ended (with the
interim condition), then finalizers, then counters and the terminal condition. Whatever fails, fails the sync; the queue
brings the Job back, and everything is decided anew from what the caches show.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from builtin_controller import claiming, memory, metrics
from builtin_controller.acting import Actor, Recorder
from builtin_controller.deciding import Decision, Observed, decide
from builtin_controller.ganging import Gangs
from builtin_controller.job import Job
from builtin_controller.ledger import Ledger
from builtin_controller.memory import Memory
from builtin_controller.options import STALE_CONSISTENCY, Options
from builtin_controller.pods import Pod, with_tracking_finalizer
from builtin_controller.tracking import Outcome, Tracking, settle, track
from builtin_controller.vocabulary import RECONCILING
from multimirror.batch import Json, is_finished
from multimirror.kube import Client, Informer, WorkQueue
from multimirror.kube.controller import NotYet
from multimirror.kube.errors import Invalid, NotFound
from multimirror.kube.resources import JOBS

_MODES: Final = frozenset({None, "Indexed", "NonIndexed"})
_log = structlog.get_logger(__name__)


class CannotAdoptError(Exception):
    """The Job that wanted to adopt pods is being deleted, or has been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a sync works with."""

    client: Client
    jobs: Informer
    pods: Informer
    queue: WorkQueue
    ledger: Ledger
    memory: Memory
    actor: Actor
    gangs: Gangs | None
    record: Recorder
    options: Options
    clock: Callable[[], float]


class Syncer:
    """Brings Jobs forward, one at a time for each key."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stale_guard = parts.options.enabled(STALE_CONSISTENCY)

    async def sync(self, key: str) -> None:
        """Bring the Job under this key forward."""
        self._check_caches(key)
        parts = self._parts
        raw = parts.jobs.get(key)
        if raw is None:
            parts.memory.forget(key)
            return
        uid, spec = raw["metadata"]["uid"], raw.get("spec") or {}
        if parts.options.foreign(spec.get("managedBy")):
            # Judged here and not when queueing: a Job may be replaced by another one while its key waits (KEP-4368).
            _log.info("left to another controller", job=key, uid=uid, controller=spec.get("managedBy"))
            return
        if is_finished(raw.get("status") or {}):
            parts.memory.job_finished(key, uid)
            return
        if parts.memory.has_finished(uid):
            return  # the event that says so is on its way
        if spec.get("completionMode") not in _MODES:
            text = "Skipped Job sync because completion mode is unknown"
            parts.record(raw, "Warning", "UnknownCompletionMode", text)
            return
        await self._measured(Job.of(raw))

    def _check_caches(self, key: str) -> None:
        if not self._stale_guard:
            return
        parts = self._parts
        caches = {memory.PODS: parts.pods.resource_version, memory.JOBS: parts.jobs.resource_version}
        behind = parts.memory.behind(key, caches)
        if behind is not None:
            metrics.STALE_SKIPS.labels(*behind).inc()
            raise NotYet(f"the cache of {behind[1]} is older than what was written for Job {key}")

    async def _measured(self, job: Job) -> None:
        started = time.monotonic()
        run = _Run(self._parts, job)
        result = "error"
        try:
            await run()
            result = "success"
        finally:
            labels = (job.mode, result, run.action)
            metrics.SYNC_SECONDS.labels(*labels).observe(time.monotonic() - started)
            metrics.SYNCS.labels(*labels).inc()


class _Run:
    """One sync, in its order."""

    def __init__(self, parts: Parts, job: Job) -> None:
        self.action = RECONCILING
        self._parts = parts
        self._job = job
        self._error: Exception | None = None

    async def __call__(self) -> None:
        parts, job, mind = self._parts, self._job, self._parts.memory
        unsettled = mind.unsettled(job.key, job.uid)  # before looking at pods, so that none slips in between
        pods = await self._claim()
        group = await parts.gangs.ensure(job, parts.ledger.count(job.uid)) if parts.gangs is not None else None
        decision = decide(
            Observed(
                job=job,
                pods=pods,
                now=parts.clock(),
                options=parts.options,
                settled=not unsettled,
                removing=mind.removing(job.key),
                record=mind.record(job.key),
                pod_group=group,
            )
        )
        if decision.wake_after is not None:
            parts.queue.add_after(job.key, decision.wake_after)
        if unsettled:
            parts.queue.add_after(job.key, unsettled)  # should it never be told, nothing else would bring us back
        self.action = decision.work.action
        outcome = await self._work(decision)
        tracking = track(decision, outcome, parts.clock())
        for reason, message in tracking.events:
            parts.record(job.raw, "Normal", reason, message)
        await self._write_down(tracking)
        parts.ledger.close(job, pods)
        if self._error is not None:
            raise self._error

    async def _claim(self) -> list[Pod]:
        """The Job's pods, after adopting and letting go. A pod that could not be claimed fails the sync."""
        job, ledger, actor = self._job, self._parts.ledger, self._parts.actor
        claims = claiming.claim(job, ledger.pods_of(job.uid), ledger.ownerless(job.namespace))
        errors: list[Exception] = []
        if claims.release:
            failed = await actor.patch_pods(claims.release, lambda pod: claiming.release(job, pod))
            errors += [error for _, error in failed if not isinstance(error, NotFound | Invalid)]
        own = list(claims.own)
        if claims.adopt:
            await self._check_adoption()
            failed = await actor.patch_pods(claims.adopt, lambda pod: claiming.adoption(job, pod))
            errors += [error for _, error in failed if not isinstance(error, NotFound)]
            lost = {pod.uid for pod, _ in failed}
            adopted = [pod for pod in claims.adopt if pod.uid not in lost]
            own += [pod if pod.tracked else Pod(with_tracking_finalizer(pod.raw)) for pod in adopted]
        if errors:
            raise errors[0]
        return own

    async def _check_adoption(self) -> None:
        """Ask the server itself before adopting: the cache may not know yet that the Job is being deleted."""
        job = self._job
        fresh = await self._parts.client.get(JOBS, job.name, job.namespace)
        if fresh["metadata"]["uid"] != job.uid:
            raise CannotAdoptError(f"Job {job.key} is gone: another one of its name is there")
        if fresh["metadata"].get("deletionTimestamp"):
            raise CannotAdoptError(f"Job {job.key} is being deleted")

    async def _work(self, decision: Decision) -> Outcome:
        """Delete or create pods. An error is kept for the end: what happened is written down first."""
        actor, job, work = self._parts.actor, self._job, decision.work
        errors: list[Exception] = []
        outcome = Outcome()
        if work.kill:
            deleted, errors = await actor.kill_pods(job, work.kill)
            outcome = Outcome(deleted=deleted, ready=decision.ready)
        elif work.remove:
            deleted, ready, errors = await actor.remove_pods(job, work.remove)
            outcome = Outcome(deleted=deleted, ready=ready)
        elif work.create:
            created, errors = await actor.create_pods(job, work.create)
            metrics.count_creations(
                job,
                failed_so_far=decision.failed,
                terminating=decision.terminating,
                created=created + len(errors),  # as Kubernetes counts: a refused one is in both
                refused=len(errors),
            )
            outcome = Outcome(created=created)
        elif work.wait is not None:
            # Not sooner than changes of pods would bring us here.
            parts = self._parts
            parts.queue.add_after(job.key, max(work.wait, parts.options.sync_batch_period))
        self._error = errors[0] if errors else None
        return outcome

    async def _write_down(self, tracking: Tracking) -> None:
        parts, job = self._parts, self._job
        raw, status = job.raw, tracking.status
        before = job.status
        if tracking.flush:
            raw = await parts.actor.write_status(raw, status)
            status = raw.get("status") or {}
            parts.memory.keep_record(job.key, tracking.decision.record)
            metrics.count_progress(job, before, status)
            before = status
        for action, count in tracking.policy_actions.items():
            metrics.POLICY_ACTIONS.labels(action).inc(count)
        released: set[str] = set()
        errors: list[Exception] = []
        if tracking.release:
            released, errors = await parts.actor.release_pods(job.key, tracking.release)
        last = settle(tracking, status, released, failed=bool(errors), now=parts.clock())
        if last.flush:
            raw = await parts.actor.write_status(raw, last.status)
            metrics.count_progress(job, before, raw.get("status") or {})
        if last.finished:
            parts.memory.finish(job.uid)
            self._tell_end(raw, tracking)
        if errors:
            raise errors[0]

    def _tell_end(self, raw: Json, tracking: Tracking) -> None:
        job, end = self._job, tracking.verdict
        assert end is not None
        result = "succeeded" if end.success else "failed"
        if end.success:
            succeeded = (raw.get("status") or {}).get("succeeded") or 0
            if job.completions is not None and succeeded > job.completions:
                text = "Too many succeeded pods running after completion count reached"
                self._parts.record(raw, "Warning", "TooManySucceededPods", text)
            self._parts.record(raw, "Normal", "Completed", "Job completed")
        else:
            self._parts.record(raw, "Warning", end.reason, end.message)
        metrics.JOBS_FINISHED.labels(job.mode, result, end.reason).inc()
