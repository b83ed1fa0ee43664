"""What to do about one Job: a pure function of what the caches hold and of the time.

    gone, or being deleted  -> its copies go
    finished                -> copies that did not bring it about go now, the one that did after the queue's retention
    run by somebody else    -> it is taken from its worker, suspended, and not placed
    not assigned            -> copies of earlier attempts go first, then it shows that it waits, then it is placed
    assigned                -> one copy on that worker: made, kept in step, mirrored; lost or vanished: another attempt

The order of the rules is the proof of the invariants: no Job is placed while a copy of it can still be seen (I1), a
finished Job keeps no copy that could start a pod (I2), only copies that carry our origin come in here at all (I5), and
every branch that does nothing says why (I7). Nothing is remembered between calls except what the caller passes in:
refusals by workers, and the last words of copies that were finished when they vanished.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from multimirror.api import HOLD_ANNOTATION
from multimirror.api.placement import Copy, attempt_of, cluster_of, is_held, is_run_here, lease_of
from multimirror.batch import Json, Phase, find_condition, is_finished, phase
from multimirror.batch.times import format_time, moment, seconds_of
from multimirror.kinds.job.endings import suspended_status, with_ending
from multimirror.kinds.job.fence import deadline, fenced_out, first_deadline, may_resume, safe_after
from multimirror.kinds.job.mirror import Refusal, mirror_status
from multimirror.reconcile.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    LookAgain,
    PatchStatus,
    Place,
    Refuse,
    SyncCopy,
    Unassign,
    Warn,
)

LostPolicy = Literal["Redispatch", "Wait", "Fail"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a queue says about Jobs that run."""

    lost_after: float = 300.0
    when_lost: LostPolicy = "Redispatch"
    retention: float = 0.0
    grace: float = 30.0
    """How much longer than its lease, and its pods' time to stop, a Job with a fence waits before it moves."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a worker can be talked to, and its cache believed; since when not."""

    connected: bool
    lost_since: float | None = None
    why: str = ""
    recorded: bool = True
    """Its WorkerCluster says so too; without that no lease is given there."""
    ahead: float = 0.0
    """By how many seconds its clock is ahead of ours."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known around one Job."""

    job: Json | None
    copies: Sequence[Copy] = ()
    policy: Policy = field(default_factory=Policy)
    workers: Mapping[str, Reach] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Workers that would not take the copy of the current attempt, or of an earlier one not long ago, and why."""
    last_words: Json | None = None
    """The status of the current attempt's copy when it was last seen, if it was finished and has vanished."""
    now: float = 0.0


def decide(situation: Situation) -> list[Action]:
    """What to do now. Actions on different clusters may be carried out side by side."""
    job = situation.job
    if job is None or "deletionTimestamp" in job["metadata"]:
        return _deletions(situation.copies, "orphan")
    if is_finished(job.get("status") or {}):
        return _after_the_end(job, situation)
    cluster, attempt = cluster_of(job), attempt_of(job)
    if is_run_here(job) or (attempt == 0 and _touched_by_others(job)):
        return _claimed(situation, cluster)
    # An attempt is made on one worker only: its copy is the copy, even if its cluster has got another name since.
    # Somebody may have made it a second time elsewhere (a backup that was restored there): that one goes.
    of_attempt = [c for c in situation.copies if c.attempt == attempt and cluster is not None]
    current = next((c for c in of_attempt if c.worker == cluster), of_attempt[0] if of_attempt else None)
    stale = [c for c in situation.copies if current is None or c.uid != current.uid]
    actions = _deletions(_within_reach(stale, situation), "stale")
    if cluster is None:
        return actions + _unassigned(job, situation)
    return actions + _assigned(job, situation, cluster, current)


def _claimed(situation: Situation, cluster: str | None) -> list[Action]:
    """Somebody else runs it, here: it is in two places, or would be. Suspended it is in none."""
    if cluster is not None:
        message = "another controller runs this Job, although spec.managedBy names this one; it is suspended"
        return [Unassign("ManagedByIgnored", message)]
    message = (
        "another controller writes to this Job, although spec.managedBy names this one; it is not placed. Does the "
        "cluster's own Job controller know spec.managedBy (Kubernetes 1.32 and later)?"
    )
    return [*_deletions(_within_reach(situation.copies, situation), "stale"), Warn("ManagedByIgnored", message)]


# --- not assigned -----------------------------------------------------------------------------------------------------


def _unassigned(job: Json, situation: Situation) -> list[Action]:
    waiting = _show_suspended(job, situation)
    if waiting:
        return waiting
    if _within_reach(situation.copies, situation):
        return []  # their deletion will be told
    if is_held(job):
        message = (
            "it is held, as its user asked, and not placed; set spec.suspend to false, or remove the annotation "
            f"{HOLD_ANNOTATION}, to let it go"
        )
        return [Warn("Held", message, "Normal")]
    return [Place(tuple(sorted(situation.refusals.items())))]


def _show_suspended(job: Json, situation: Situation) -> list[Action]:
    """A Job that ran before shows that it does not run now: a startTime may only be reset while it is suspended."""
    if attempt_of(job) == 0 or not job["spec"].get("suspend"):
        return []
    return _mirrored(job, suspended_status(job, _now(situation)), None)


# --- assigned ---------------------------------------------------------------------------------------------------------


def _assigned(job: Json, situation: Situation, cluster: str, copy: Copy | None) -> list[Action]:
    reach = situation.workers.get(cluster if copy is None else copy.worker, Reach(connected=False))
    if not reach.connected:
        return _lost(job, situation, cluster, reach)
    if copy is None:
        return _without_copy(job, situation, cluster)
    status = copy.job.get("status") or {}
    if fenced_out(job, status):
        return _fenced_out(job, situation, cluster) if is_finished(status) else []  # its end will be told
    actions: list[Action] = []
    if not copy.terminating and not is_finished(status):
        actions += _in_step(job, copy, reach, situation.now)
    return actions + _mirrored(job, status, cluster)


def _fenced_out(job: Json, situation: Situation, cluster: str) -> list[Action]:
    """The worker ended the copy because it did not hear from us: that is not the user's failure."""
    if job["spec"].get("suspend"):
        return _show_suspended(job, situation)  # its user stopped it meanwhile
    problem = f"worker {cluster} had no contact for a lease of {lease_of(job)} s and ended the Job there"
    if situation.policy.when_lost == "Fail":
        return _mirrored(job, with_ending(job, _now(situation), reason="WorkerLost", message=problem), cluster)
    return [Unassign("LeaseExpired", f"{problem}; it is started again")]


def _without_copy(job: Json, situation: Situation, cluster: str) -> list[Action]:
    status = job.get("status") or {}
    if situation.last_words is not None and fenced_out(job, situation.last_words):
        return _fenced_out(job, situation, cluster)
    if situation.last_words is not None:
        told = _mirrored(job, situation.last_words, cluster)
        if told:
            return told
    if phase(status) is not Phase.RUNNING:
        # Its end had been announced; an announcement cannot be taken back, and must not be, or it would run again.
        return _mirrored(job, with_ending(job, _now(situation)), cluster)
    if job["spec"].get("suspend"):
        return _show_suspended(job, situation)  # its user stopped it, and another attempt would start it again
    if status.get("startTime"):
        return [Unassign("CopyVanished", f"the Job was deleted on worker {cluster}; it is started again")]
    if cluster in situation.refusals:
        return [Unassign("Refused", f"worker {cluster} did not take it: {situation.refusals[cluster]}")]
    if any(c.worker != cluster for c in _within_reach(situation.copies, situation)):
        return []  # an earlier attempt's copy is still there; its deletion will be told
    if lease_of(job) is not None and not situation.workers[cluster].recorded:
        return []  # that it is will be told
    return [CreateCopy(cluster, attempt_of(job), first_deadline(job))]


def _lost(job: Json, situation: Situation, cluster: str, reach: Reach) -> list[Action]:
    policy = situation.policy
    if job["spec"].get("suspend"):
        return []  # its user stopped it: there is nothing to start elsewhere before it is resumed
    if reach.lost_since is None:
        return []  # it is being tried right now, and will be there or lost: a new connection must move no Job
    patience = max(policy.lost_after, safe_after(job, policy.grace))
    due = reach.lost_since + patience - situation.now
    problem = f"worker {cluster} cannot be reached" + (f" ({reach.why})" if reach.why else "")
    if policy.when_lost == "Wait":
        return [Warn("WorkerLost", f"{problem}; the queue says to wait for it")]
    if due > 0:
        then = "started elsewhere" if policy.when_lost == "Redispatch" else "failed"
        return [
            Warn("WorkerLost", f"{problem}; unless it comes back within {patience:g} s the Job is {then}"),
            LookAgain(due),
        ]
    if policy.when_lost == "Fail" or phase(job.get("status") or {}) is not Phase.RUNNING:
        message = f"{problem} for more than {patience:g} s"
        return _mirrored(job, with_ending(job, _now(situation), reason="WorkerLost", message=message), cluster)
    return [Unassign("WorkerLost", f"{problem} for more than {patience:g} s; the Job is started elsewhere")]


def _in_step(job: Json, copy: Copy, reach: Reach, now: float) -> list[Action]:
    """The fields that may change while a Job runs, and only those: what a worker's webhooks add is not ours to undo."""
    spec, theirs = job["spec"], copy.job["spec"]
    wanted: Json = {"parallelism": spec.get("parallelism", 1)}
    later: list[Action] = []
    fenced = lease_of(job) is not None
    if spec.get("suspend") or not fenced or not theirs.get("suspend") or may_resume(copy):
        wanted["suspend"] = bool(spec.get("suspend"))
    if not fenced or reach.recorded:
        wanted["activeDeadlineSeconds"], again = deadline(job, copy, now + reach.ahead)
        later = [LookAgain(again)] if again is not None else []
    if spec.get("completionMode") == "Indexed":
        wanted["completions"] = spec.get("completions")
    found = {key: theirs.get(key) for key in wanted} | {"suspend": bool(theirs.get("suspend"))}
    changed = {key: value for key, value in wanted.items() if found[key] != value}
    if not changed:
        return later
    metadata = copy.job["metadata"]
    was = {key: found[key] for key in changed}
    return [SyncCopy(copy.worker, metadata["namespace"], metadata["name"], copy.uid, changed, was), *later]


# --- the end ----------------------------------------------------------------------------------------------------------


def _after_the_end(job: Json, situation: Situation) -> list[Action]:
    attempt = attempt_of(job)
    left = _end_of(job, situation.now) + situation.policy.retention - situation.now
    actions: list[Action] = []
    for copy in situation.copies:
        finished = is_finished(copy.job.get("status") or {})
        if finished and copy.attempt == attempt and left > 0:
            actions.append(LookAgain(left))
        else:
            actions += _deletions(_within_reach([copy], situation), "finished")
    return actions


def _end_of(job: Json, now: float) -> float:
    conditions = job["status"].get("conditions") or ()
    for kind in ("Complete", "Failed"):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            return seconds_of(condition.get("lastTransitionTime"), now)
    return now


# --- common -----------------------------------------------------------------------------------------------------------


def _mirrored(job: Json, observed: Json, worker: str | None) -> list[Action]:
    result = mirror_status(job, observed)
    if result is None:
        return []
    if isinstance(result, Refusal):
        return [Refuse(worker or "", result)]
    return [PatchStatus(result, worker)]


def _deletions(copies: Iterable[Copy], why: Literal["orphan", "finished", "stale"]) -> list[Action]:
    return [
        DeleteCopy(c.worker, c.job["metadata"]["namespace"], c.job["metadata"]["name"], c.uid, why)
        for c in copies
        if not c.terminating
    ]


def _within_reach(copies: Iterable[Copy], situation: Situation) -> list[Copy]:
    return [c for c in copies if (reach := situation.workers.get(c.worker)) is not None and reach.connected]


def _touched_by_others(job: Json) -> bool:
    """Nobody but us writes the status of a Job that we manage, and we write none before the first attempt."""
    status = job.get("status") or {}
    foreign = (c for c in status.get("conditions") or () if "/" not in c.get("type", ""))
    return bool(status.get("startTime") or status.get("active") or any(foreign))


def _now(situation: Situation) -> str:
    return format_time(moment(situation.now))
