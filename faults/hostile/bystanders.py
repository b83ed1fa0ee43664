"""All promises, for everybody but a hostile worker.

*Touched* is a Job that was given to it at some time. Of all other Jobs everything is asked that a run without it is
asked. Of a touched one, what the hostile worker cannot take away: its status follows the API's rules, it starts nothing
after its end, whatever is done to it on honest workers is right, and it ends or says why not. How it ends is asked
where an honest worker has it in the end, and had it when it ended.

Jobs that carry our labels and that we did not make (`FORGED`) are no copies: they are left out of the record, and what
we do to them is a violation of its own (I5).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from faults import copies, statuses
from faults.conduct import no_work_is_thrown_away
from faults.invariants import ALWAYS, AT_REST, Check
from faults.record import MANAGEMENT, Exchange, Record, Seen
from faults.rules import Rules, Violation
from faults.statuses import holds
from multimirror.batch import is_finished

Json = dict[str, Any]
FORGED: Final = "faults.example.com/forged"
"""An annotation on Jobs that were made to look like copies: for us, who check. Nobody else reads it."""
USURPED: Final = "usurped"
"""Its value on one that took the place of a copy, with that copy's signature."""
STATUS_BYTES: Final = 64 * 1024
"""More than any status that a Job of these runs can need, with room."""
MEMORY: Final = 64 * 2**20
"""By which the whole simulation may grow in one run with a hostile worker: dispatcher, clusters and record together."""
STATUS_WRITES: Final = 60
STATUS_SECONDS: Final = 30.0
LOOP_WRITES: Final = 40
LOOP_SECONDS: Final = 10.0

_ANNOUNCED: Final = ("FailureTarget", "SuccessCriteriaMet")
_OF_TOUCHED: Final[tuple[Check, ...]] = (
    copies.finished_jobs_start_nothing,
    statuses.statuses_follow_the_rules,
    copies.others_are_left_alone,
    no_work_is_thrown_away,
)
_OF_TOUCHED_AT_REST: Final[tuple[Check, ...]] = (copies.nothing_stays, statuses.every_job_ends_or_says_why_not)


def judge(record: Record, rules: Rules, hostile: str) -> list[Violation]:
    """Everything that is wrong."""
    touched = touched_by(record, rules, hostile)
    others, own = bystanders(record, rules, hostile, touched), _touched_alone(record, rules, hostile, touched)
    named = _names(record, touched)
    kind = replace(rules, ends={name: end for name, end in rules.ends.items() if name not in named})
    found = [each for check in (*ALWAYS.values(), *AT_REST.values()) for each in check(others, kind)]
    found += [each for check in (*_OF_TOUCHED, *_OF_TOUCHED_AT_REST) for each in check(own, rules)]
    found += _ends_elsewhere(record, rules, hostile, touched)
    found += forgeries_are_left_alone(record, rules, hostile)
    found += statuses_are_small_and_paced(record, rules)
    found += nothing_is_written_in_a_loop(record, rules, hostile)
    return [each for each in found if each.invariant not in rules.waived]


def not_at_rest(record: Record, rules: Rules, hostile: str) -> list[Violation]:
    """What is not yet as it must be at the end."""
    touched = touched_by(record, rules, hostile)
    named = _names(record, touched)
    kind = replace(rules, ends={name: end for name, end in rules.ends.items() if name not in named})
    others, own = bystanders(record, rules, hostile, touched), _touched_alone(record, rules, hostile, touched)
    found = [each for check in AT_REST.values() for each in check(others, kind)]
    found += [each for check in _OF_TOUCHED_AT_REST for each in check(own, rules)]
    return [*found, *_ends_elsewhere(record, rules, hostile, touched)]


def touched_by(record: Record, rules: Rules, hostile: str) -> set[str]:
    """The uids of the Jobs that the hostile worker was ever given."""
    return {
        seen.uid
        for seen in record.changes("Job", MANAGEMENT)
        if hostile and rules.labels.cluster_of(seen.object) == hostile
    }


def bystanders(record: Record, rules: Rules, hostile: str, touched: set[str]) -> Record:
    """The record of everybody else: without that worker, and without the Jobs that it was given."""
    return _filtered(record, rules, hostile, lambda uid: uid not in touched)


def _touched_alone(record: Record, rules: Rules, hostile: str, touched: set[str]) -> Record:
    return _filtered(record, rules, hostile, lambda uid: uid in touched)


def _filtered(record: Record, rules: Rules, hostile: str, wanted: Callable[[str], bool]) -> Record:
    seen: list[Seen] = []
    left_out: set[str] = set()
    for each in record.seen:
        if each.cluster == hostile or (each.kind == "WorkerCluster" and each.name == hostile):
            continue
        if each.kind == "Job":
            original = each.uid if each.cluster == MANAGEMENT else rules.labels.original_of(each.object)
            if is_forged(each.object) or (original and not wanted(original)):
                left_out.add(each.uid)
                continue
        elif each.kind == "Pod":
            owners = each.object["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] in left_out for owner in owners):
                continue
        seen.append(each)
    exchanges = [each for each in record.exchanges if each.cluster != hostile]
    struck = [each for each in record.struck if each.fault.link.rpartition("/")[2] != hostile]
    return Record(exchanges, seen, struck, record.lives)


def is_forged(job: Json) -> bool:
    """It looks like a copy, and is none."""
    return FORGED in (job["metadata"].get("annotations") or {})


def _names(record: Record, uids: set[str]) -> set[str]:
    return {seen.object["metadata"]["name"] for seen in record.changes("Job", MANAGEMENT) if seen.uid in uids}


def _ends_elsewhere(record: Record, rules: Rules, hostile: str, touched: set[str]) -> Iterator[Violation]:
    """A worker that a Job was moved away from does not decide its result; an end that was announced before stands."""
    ended: dict[str, Seen] = {}
    for seen in record.changes("Job", MANAGEMENT):
        if seen.uid in touched and (is_finished(seen.status) or any(holds(seen.status, each) for each in _ANNOUNCED)):
            ended.setdefault(seen.uid, seen)
    last = record.last("Job", MANAGEMENT)
    for uid in sorted(touched):
        job = last.get(uid)
        where = rules.labels.cluster_of(job) if job is not None else None
        if job is None or where in (None, hostile):
            continue
        first = ended.get(uid)
        if first is not None and rules.labels.cluster_of(first.object) == hostile:
            continue
        name = job["metadata"]["name"]
        found, wanted = statuses.end_of(job, rules), rules.ends.get(name)
        if wanted is not None and found != wanted:
            yield Violation("end", f"{name} was moved to {where}, is {found!r} there, and should be {wanted!r}")


def forgeries_are_left_alone(record: Record, rules: Rules, hostile: str) -> Iterator[Violation]:
    """I5: what carries our labels and was not made by us is neither changed nor deleted by us, nor mirrored.

    One that has the signature of a copy, in the very place of that copy (`USURPED`), is told from it by the uid on the
    original. Where that says nothing any more (it is gone, finished, or at another attempt) it passes for a remainder.
    """
    moments: list[tuple[float, int, Seen | Exchange]] = [(seen.time, 0, seen) for seen in record.changes("Job")]
    moments += [
        (each.time, 1, each)
        for each in record.writes(rules.dispatcher)
        if each.took_effect and each.call.verb != "create" and each.call.resource.startswith("jobs")
    ]
    there: dict[tuple[str, str], Json] = {}
    for _, _, moment in sorted(moments, key=lambda each: each[:2]):
        if moment.cluster == hostile:
            continue
        if isinstance(moment, Seen):
            if moment.type == "DELETED":
                there.pop((moment.cluster, moment.name), None)
            else:
                there[moment.cluster, moment.name] = moment.object
            continue
        name = f"{moment.call.namespace}/{moment.call.name}"
        forged = there.get((moment.cluster, name), {"metadata": {}})
        if is_forged(forged) and not _passes_for_a_remainder(forged, there.get((MANAGEMENT, name)), rules):
            yield Violation("I5", f"{name} on {moment.cluster} was not made by us, and we wrote to it", (str(moment),))


def _passes_for_a_remainder(forged: Json, original: Json | None, rules: Rules) -> bool:
    if forged["metadata"]["annotations"][FORGED] != USURPED:
        return False
    if original is None or is_finished(original.get("status") or {}) or "deletionTimestamp" in original["metadata"]:
        return True
    current = (original["metadata"].get("annotations") or {}).get(rules.labels.attempt)
    return rules.labels.cluster_of(original) is None or current != rules.labels.attempt_of(forged)


def statuses_are_small_and_paced(record: Record, rules: Rules) -> Iterator[Violation]:
    """I8: what is written to one Job's status is bounded, whatever its worker says, and however often."""
    written: dict[str, list[Exchange]] = {}
    for each in record.writes(rules.dispatcher, MANAGEMENT):
        if each.call.resource != "jobs/status" or not each.took_effect:
            continue
        size = len(str(each.body))
        if size > STATUS_BYTES:
            yield Violation("I8", f"a status of {size} bytes is written", (str(each),))
        about = written.setdefault(f"{each.call.namespace}/{each.call.name}", [])
        about.append(each)
        if len(about) > STATUS_WRITES and each.time - about[-STATUS_WRITES - 1].time < STATUS_SECONDS:
            text = f"{STATUS_WRITES} statuses of one Job in {each.time - about[-STATUS_WRITES - 1].time:.1f} s"
            yield Violation("I8", text, (str(each),))
            return


def nothing_is_written_in_a_loop(record: Record, rules: Rules, hostile: str) -> Iterator[Violation]:
    """I8: a worker that refuses, or forgets, what is written there is not asked again and again."""
    written: dict[tuple[str, str, str], list[Exchange]] = {}
    for each in record.writes(rules.dispatcher, hostile):
        body = each.body.get("metadata") if isinstance(each.body, dict) else None
        name = each.call.name or (str(body.get("name")) if isinstance(body, dict) else "")
        about = written.setdefault((each.call.verb, each.call.resource, f"{each.call.namespace}/{name}"), [])
        about.append(each)
        if name and len(about) >= LOOP_WRITES and each.time - about[-LOOP_WRITES].time < LOOP_SECONDS:
            text = f"{LOOP_WRITES} times the same write to {hostile} in {each.time - about[-LOOP_WRITES].time:.1f} s"
            yield Violation("I8", text, (str(about[-LOOP_WRITES]), str(each)))
            return


def memory_is_bounded(grown: int) -> Iterator[Violation]:
    """I8: whatever a worker sends, there is memory for everybody else."""
    if grown > MEMORY:
        yield Violation(
            "I8", f"{grown / 2**20:.0f} MiB of memory were used, and {MEMORY / 2**20:.0f} MiB are the bound"
        )
