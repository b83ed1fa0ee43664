"""Checks about copies and pods: I1 (one at a time), I2 (nothing after the end), I5 (hands off), I6 (nothing stays)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from faults import contact, fencing
from faults.plan import HELD_UP
from faults.record import MANAGEMENT, Exchange, Record, Seen
from faults.rules import Rules, Violation
from faults.strays import known, strays
from multimirror.batch import is_finished

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """A copy that lives, since then."""

    cluster: str
    uid: str
    attempt: str
    since: float
    name: str

    @property
    def order(self) -> int:
        """Of two attempts, which came first; what is no number was made by nobody of ours."""
        return int(self.attempt) if self.attempt.isdecimal() else 0

    def __str__(self) -> str:
        return f"{self.since:8.3f}  attempt {self.attempt} of {self.name} lives on {self.cluster}"


def one_copy_at_a_time(record: Record, rules: Rules) -> Iterator[Violation]:
    """I1: no two copies of a Job live at once, unless the policy allows it and the older one could not be reached."""
    live: dict[str, dict[str, Live]] = {}
    fenced = fencing.fences(record, rules)
    for seen in known(record, rules):
        original = rules.labels.original_of(seen.object) if seen.kind == "Job" else ""
        if not original:
            continue
        copies = live.setdefault(original, {})
        if _is_over(seen):
            copies.pop(seen.uid, None)
            continue
        if seen.uid in copies:
            continue
        new = Live(seen.cluster, seen.uid, rules.labels.attempt_of(seen.object), seen.time, seen.name)
        for old in copies.values():
            if not may_both_live(record, rules, old, new, fenced=fenced(original)):
                yield Violation("I1", f"two copies of {seen.name} live at once", (str(old), str(new)))
        copies[seen.uid] = new


def _is_over(seen: Seen) -> bool:
    gone = seen.type == "DELETED" or "deletionTimestamp" in seen.object["metadata"]
    return gone or is_finished(seen.status) or bool(seen.object["spec"].get("suspend"))


def may_both_live(record: Record, rules: Rules, old: Live, new: Live, *, fenced: bool) -> bool:
    """The older one's worker was out of reach for as long as the policy asks for; or it was another one by name.

    What was asked of a worker that stood still may be done when it goes on: an earlier attempt that comes late is the
    older one, and is excused where it comes no later than that."""
    if fenced:
        return fencing.does_not_hold(record, rules, old.cluster, new.since)
    if contact.spell_at(contact.swapped(record), new.since):
        return True
    if rules.when_lost != "Redispatch":
        return False
    late = new.order < old.order
    if late:
        old, new = new, old
    spells = contact.lost(record, rules.dispatcher, old.cluster)
    spell = contact.spell_at(spells, new.since)
    if spell is None or (late and old.since > spell[1] + rules.patience):
        return False
    return spell[0] + rules.lost_after - contact.lost_before(spells, spell) <= new.since + 0.01


def finished_jobs_start_nothing(record: Record, rules: Rules) -> Iterator[Violation]:
    """I2: once a Job has ended, no copy of it is made and no pod of it starts, on any worker that can be reached."""
    ends: dict[str, Seen] = {}
    copies: dict[str, Live] = {}
    gone: set[str] = set()
    for seen in known(record, rules):
        if seen.kind == "Job" and seen.type == "DELETED":
            gone.add(seen.uid)
        if seen.kind == "Job" and seen.cluster == MANAGEMENT and rules.labels.is_original(seen.object):
            if is_finished(seen.status):
                ends.setdefault(seen.uid, seen)
        elif seen.kind == "Job" and (original := rules.labels.original_of(seen.object)):
            if seen.uid not in copies:
                copies[seen.uid] = Live(seen.cluster, original, "", seen.time, seen.name)
                if original in ends and seen.type == "ADDED" and not _was_made_before(record, seen, ends[original]):
                    yield Violation("I2", f"{seen.name} is finished, and a copy of it is made on {seen.cluster}")
        elif seen.kind == "Pod" and seen.type == "ADDED":
            for uid, copy in _owners(seen.object, copies):
                if uid in gone and fencing.controller_is_behind(record, rules, seen):
                    continue
                end = ends.get(copy.uid)
                if end is not None and seen.time > _can_be_stopped(record, rules, copy, end.time):
                    text = f"{copy.name} is finished, and pod {seen.name} of it starts on {seen.cluster}"
                    yield Violation("I2", text, (f"{end.time:8.3f}  finished", f"{seen.time:8.3f}  pod added"))


def _owners(pod: Json, copies: dict[str, Live]) -> Iterator[tuple[str, Live]]:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference["uid"] in copies:
            yield reference["uid"], copies[reference["uid"]]


def _was_made_before(record: Record, seen: Seen, end: Seen) -> bool:
    """The very request that made it was sent before the end, and held up: nobody can call it back.

    Where no requests are recorded, watches alone tell, one of each cluster, and that of a worker may be behind: then it
    is the clusters' own times that count, to the second."""
    if record.exchanges:
        made = record.created_by(seen)
        return made is not None and made.fault in HELD_UP and made.time <= end.time
    last = max(str(each.get("lastTransitionTime", "")) for each in end.status["conditions"])
    return str(seen.object["metadata"].get("creationTimestamp", "~")) <= last


def _can_be_stopped(record: Record, rules: Rules, copy: Live, ended: float) -> float:
    """From when on no pod of this copy starts any more: at once; or, out of reach, or come late, a while after."""
    first = ended if copy.since <= ended else copy.since + rules.patience
    spell = contact.spell_at(contact.no_contact_by_name(record, rules.dispatcher, copy.cluster), first)
    return spell[1] if spell is not None else first


def others_are_left_alone(record: Record, rules: Rules) -> Iterator[Violation]:
    """I5: no object without our origin is changed or deleted by us; nor, at home, a Job that is not ours."""
    yield from _by_request(record, rules)
    for seen in record.changes("Job"):
        if seen.cluster == MANAGEMENT or seen.type == "DELETED" or rules.labels.is_copy(seen.object):
            continue
        managers = {entry.get("manager") for entry in seen.object["metadata"].get("managedFields") or ()}
        if rules.user_agent in managers:
            yield Violation("I5", f"{seen.name} on {seen.cluster} is not ours, and we wrote to it")


def _by_request(record: Record, rules: Rules) -> Iterator[Violation]:
    moments: list[tuple[float, int, Seen | Exchange]] = []
    moments += [(seen.time, 0, seen) for seen in record.changes("Job")]
    moments += [(each.time, 1, each) for each in record.writes(rules.dispatcher) if each.took_effect]
    there: dict[tuple[str, str], Json] = {}
    for _, _, moment in sorted(moments, key=lambda each: each[:2]):
        if isinstance(moment, Seen):
            there[moment.cluster, moment.name] = moment.object
            continue
        call = moment.call
        if moment.cluster != MANAGEMENT and call.resource not in ("jobs", "jobs/status", "selfsubjectaccessreviews"):
            yield Violation("I5", "a worker is written to beyond Jobs", (str(moment),))
        if call.resource.partition("/")[0] != "jobs":
            continue
        if call.verb == "create":
            if not rules.labels.is_copy(moment.body):
                yield Violation("I5", "a Job without our origin is made", (str(moment),))
            continue
        target = there.get((moment.cluster, f"{call.namespace}/{call.name}"))
        original = moment.cluster == MANAGEMENT and target is not None and rules.labels.is_original(target)
        if target is not None and not original and not rules.labels.is_copy(target):
            yield Violation("I5", f"{call.namespace}/{call.name} is not ours, and we wrote to it", (str(moment),))


def _is_stale(record: Record, rules: Rules, copy: Json, cluster: str, original: Json) -> bool:
    """Of an older attempt, of none, or one too many. The only one of its attempt is the copy, whatever its cluster is
    called: two workers may have changed places when it was made."""
    home, attempt = rules.labels.cluster_of(original), rules.labels.attempt_of(copy)
    if home is None or not rules.labels.is_current(copy, home, original):
        return True
    uid = original["metadata"]["uid"]
    return cluster != home and any(
        rules.labels.original_of(job) == uid and rules.labels.attempt_of(job) == attempt
        for job in record.last("Job", home).values()
    )


def nothing_stays(record: Record, rules: Rules) -> Iterator[Violation]:
    """I6: at the end, no copy whose original is gone (or finished, past retention), no pod without its Job."""
    originals, unknown = record.last("Job", MANAGEMENT), strays(record, rules)
    for cluster in sorted({seen.cluster for seen in record.seen} - {MANAGEMENT}):
        jobs = record.last("Job", cluster)
        for job in jobs.values():
            original = rules.labels.original_of(job)
            name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            if not original or job["metadata"]["uid"] in unknown:
                continue
            if original not in originals:
                yield Violation("I6", f"{name} is gone, and a copy of it stays on {cluster}")
            elif is_finished(originals[original].get("status") or {}) and rules.retention == 0:
                yield Violation("I6", f"{name} is finished, and a copy of it stays on {cluster}")
            elif _is_stale(record, rules, job, cluster, originals[original]):
                yield Violation("I6", f"{name} runs elsewhere, and an older copy of it stays on {cluster}")
        for pod in record.last("Pod", cluster).values():
            owners = [reference["uid"] for reference in pod["metadata"].get("ownerReferences") or ()]
            if owners and not any(uid in jobs for uid in owners):
                kept = pod["metadata"].get("finalizers")
                why = f", held by {kept}" if kept else ""
                yield Violation("I6", f"pod {pod['metadata']['name']} stays on {cluster} without its Job{why}")
