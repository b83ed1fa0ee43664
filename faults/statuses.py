"""Checks about what users see: I3 (status rules), I4 (agreement), I7 (every Job ends, or says why not)."""

from collections.abc import Iterator
from typing import Any, Final

from faults import contact, fencing
from faults.record import MANAGEMENT, Record
from faults.rules import Rules, Violation
from multimirror.api.placement import hold_requested
from multimirror.batch import is_finished, validate_job_status

Json = dict[str, Any]
_AGREED: Final = ("active", "ready", "succeeded", "failed", "completedIndexes", "failedIndexes")
_COUNTERS: Final = ("succeeded", "failed", "completedIndexes", "failedIndexes")


def statuses_follow_the_rules(record: Record, rules: Rules) -> Iterator[Violation]:
    """I3: each status may follow the one before it; counters never go down; no terminal condition is taken back."""
    last: dict[str, Json] = {}
    for seen in record.changes("Job", MANAGEMENT):
        before, job = last.get(seen.uid), seen.object
        last[seen.uid] = job
        if seen.type != "MODIFIED" or before is None or not rules.labels.is_original(job):
            continue
        old, new = before.get("status") or {}, seen.status
        for error in validate_job_status(new, old, job["spec"]):
            yield Violation("I3", f"{seen.name}: {error}", (f"was {old}", f"is  {new}"))
        for counter in ("succeeded", "failed"):
            if (new.get(counter) or 0) < (old.get(counter) or 0) and not _forgets_indexes(job["spec"]):
                yield Violation("I3", f"{seen.name}: {counter} went from {old[counter]} to {new.get(counter) or 0}")
        for kind in ("Complete", "Failed"):
            if holds(old, kind) and not holds(new, kind):
                yield Violation("I3", f"{seen.name}: {kind} was taken back")
    for each in record.writes(rules.dispatcher, MANAGEMENT):
        if each.call.resource == "jobs/status" and each.status == 422:
            yield Violation("I3", "a status was sent that the API server had to refuse", (str(each), str(each.body)))


def _forgets_indexes(spec: Json) -> bool:
    """An elastic Job may: one that is Indexed and as wide as it is long."""
    return spec.get("completionMode") == "Indexed" and spec.get("parallelism") == spec.get("completions")


def original_and_copy_agree(record: Record, rules: Rules) -> Iterator[Violation]:
    """I4: at the end, an original shows what its copy shows, or showed when it was last there.

    While two workers have changed places, nobody can tell a copy that is out of sight from one that vanished: what
    such a copy showed last is not asked for.
    """
    swapped = any(struck.fault.kind == "swap" for struck in record.struck)
    fenced = fencing.fences(record, rules)
    last: dict[tuple[str, str, str], Json] = {}
    for seen in record.changes("Job"):
        if seen.cluster != MANAGEMENT and (original := rules.labels.original_of(seen.object)):
            last[original, seen.cluster, rules.labels.attempt_of(seen.object)] = seen.object
    for uid, job in record.last("Job", MANAGEMENT).items():
        if not rules.labels.is_original(job):
            continue
        cluster, attempt = rules.labels.cluster_of(job), _attempt(rules, job)
        copy = last.get((uid, cluster or "", attempt))
        if copy is None or (job.get("metadata") or {}).get("deletionTimestamp"):
            continue
        if fenced(uid) and job["spec"].get("suspend") and holds(copy.get("status") or {}, "Failed"):
            continue  # its lease ended it before its user's wish was known there: not the Job's end
        if copy["metadata"]["uid"] not in record.last("Job", cluster or ""):
            if swapped:
                continue
            if job["spec"].get("suspend"):  # by its user, who is shown that nothing runs any more
                copy = {**copy, "status": {**(copy.get("status") or {}), "active": 0, "ready": 0}}
        counts = attempt == "1" and not _ended_while_lost(record, rules, uid, cluster or "")
        yield from _compared(job, copy, counts=counts)


def _ended_while_lost(record: Record, rules: Rules, uid: str, cluster: str) -> bool:
    """Its worker had been out of reach for as long as the policy waits: an end that was announced, without numbers."""
    moments = (s.time for s in record.changes("Job", MANAGEMENT) if s.uid == uid and is_finished(s.status))
    ended = next(moments, None)
    spell = contact.spell_at(contact.lost(record, rules.dispatcher, cluster), ended) if ended is not None else None
    return ended is not None and spell is not None and spell[0] + rules.lost_after <= ended + 0.01


def _compared(job: Json, copy: Json, *, counts: bool) -> Iterator[Violation]:
    ours, theirs = job.get("status") or {}, copy.get("status") or {}
    if is_finished(ours) and not is_finished(theirs):
        return  # its end came from elsewhere: the policy for lost workers, or what had been announced
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    for field in _AGREED:
        mine, its = ours.get(field) or 0, theirs.get(field) or 0
        if mine != its and (counts or field not in _COUNTERS):
            yield Violation("I4", f"{name}: {field} is {mine!r}, and {its!r} on its worker", (str(ours), str(theirs)))
    for kind in ("Complete", "Failed"):
        if holds(ours, kind) != holds(theirs, kind):
            yield Violation("I4", f"{name}: {kind} only on one side", (str(ours), str(theirs)))


def every_job_ends_or_says_why_not(record: Record, rules: Rules) -> Iterator[Violation]:
    """I7: finished, running on a worker, stopped by its user; or an event says why it waits. Events are sent once: who
    was to be told, and whose event a fault has eaten, shows at least that it waits."""
    told = {
        seen.object.get("involvedObject", {}).get("uid")
        for seen in record.changes("Event", MANAGEMENT)
        if seen.object.get("message")
    }
    unheard = {
        (each.body.get("involvedObject") or {}).get("uid")
        for each in record.writes(rules.dispatcher, MANAGEMENT)
        if each.call.resource == "events" and each.fault and not each.took_effect and isinstance(each.body, dict)
    }
    for uid, job in record.last("Job", MANAGEMENT).items():
        if not rules.labels.is_original(job):
            continue
        status, name = job.get("status") or {}, job["metadata"]["name"]
        stopped = job["spec"].get("suspend") and rules.labels.cluster_of(job) is not None
        shows = uid in unheard and holds(status, "Suspended")
        if not (is_finished(status) or status.get("active") or stopped or uid in told or shows):
            yield Violation(
                "I7", f"{name} neither ends nor says why not", (str(job["spec"].get("suspend")), str(status))
            )


def jobs_end_as_they_should(record: Record, rules: Rules) -> Iterator[Violation]:
    """The end of the run is that of a run in which nothing goes wrong."""
    found = ends(record, rules)
    for name, wanted in rules.ends.items():
        if found.get(name, "gone") not in wanted.split(" or "):
            yield Violation("end", f"{name} is {found.get(name, 'gone')!r}, and should be {wanted!r}")


def ends(record: Record, rules: Rules) -> dict[str, str]:
    """How each original stands, by name; those that are gone are not in it."""
    return {
        job["metadata"]["name"]: end_of(job, rules)
        for job in record.last("Job", MANAGEMENT).values()
        if rules.labels.is_original(job)
    }


def end_of(job: Json, rules: Rules) -> str:
    """In a word or two."""
    status = job.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["status"] == "True" and condition["type"] == "Complete":
            return "Complete"
        if condition["status"] == "True" and condition["type"] == "Failed":
            return f"Failed {condition.get('reason', '')}".strip()
    if rules.labels.cluster_of(job) is None:
        return "Held" if hold_requested(job) and job["spec"].get("suspend") else "Waiting"
    if job["spec"].get("suspend"):
        return "Suspended" if not status.get("active") else "Suspending"
    wanted = min(job["spec"].get("parallelism", 1), job["spec"].get("completions") or 2**31)
    return "Running" if status.get("ready") == status.get("active") == wanted else "Starting"


def holds(status: Json, kind: str) -> bool:
    """Whether a condition is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())


def _attempt(rules: Rules, job: Json) -> str:
    """The original's annotation has the name of the copies' label."""
    return str((job["metadata"].get("annotations") or {}).get(rules.labels.attempt, ""))
