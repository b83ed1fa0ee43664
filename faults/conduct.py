"""Checks about how the controller behaves: I8 (sick workers), I9 (true caches, true leaders), I10 (staying up)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from faults import contact
from faults.plan import HELD_UP
from faults.record import MANAGEMENT, Exchange, Life, Record, Seen, holder_of, is_of
from faults.rules import Rules, Violation
from multimirror.api import CONNECTED
from multimirror.api.placement import preempted_of
from multimirror.batch import find_condition, is_finished

Json = dict[str, Any]
_STORM: Final = 30
_STORM_SECONDS: Final = 10.0
_HEARD_LATE: Final = 1.0  # who watches may hear of a write after its writer has gone on
_EVERYBODYS: Final = ("leases", "selfsubjectaccessreviews", "secrets")
"""Written by replicas that do not lead, too."""
_NO_ANSWER: Final = ("TimedOut", "Unreachable")
_NOTICED_LATE: Final = 20.0  # from the first heartbeat without an answer until that is written down
_RELIED_ON: Final = 2 / 3  # of a lease's duration, by who holds it
_STUCK: Final = 60.0  # after which a copy that does not stop may be deleted
_NEEDED: Final = ("jobs", "namespaces", "secrets", "workerclusters", "mirrorqueues", "cohorts")


def healthy_workers_are_served(record: Record, rules: Rules) -> Iterator[Violation]:
    """I8: a Job that is assigned to a worker in good health is there soon, whatever is wrong with the others."""
    if not record.exchanges:
        return
    tried: dict[str, list[Exchange]] = {}
    for each in record.writes(rules.dispatcher):
        if each.call.resource == "jobs" and each.call.verb == "create":
            tried.setdefault(each.cluster, []).append(each)
    end = max(each.time for each in record.exchanges)
    assigned: dict[str, Seen] = {}
    for seen in record.changes("Job", MANAGEMENT):
        before, assigned[seen.uid] = assigned.get(seen.uid), seen
        cluster = rules.labels.cluster_of(seen.object)
        if cluster is None or (before is not None and rules.labels.cluster_of(before.object) == cluster):
            continue
        until = seen.time + rules.patience
        if until > end or _in_the_way(record, rules, cluster, seen.time, until):
            continue
        if _changed_again(record, seen, until):
            continue
        since = seen.time - _HEARD_LATE
        if not any(since <= each.time <= until and _is_for(each, seen) for each in tried.get(cluster, ())):
            yield Violation("I8", f"{seen.name} was given to {cluster}, and was not there {rules.patience:g} s later")


def _is_for(each: Exchange, seen: Seen) -> bool:
    return bool(each.body and each.body["metadata"]["name"].startswith(seen.object["metadata"]["name"][:40]))


def _changed_again(record: Record, seen: Seen, until: float) -> bool:
    """Deleted or suspended by its user meanwhile."""
    return any(
        each.uid == seen.uid
        and seen.time < each.time <= until
        and (
            each.type == "DELETED"
            or "deletionTimestamp" in each.object["metadata"]
            or each.object["spec"].get("suspend")
        )
        for each in record.changes("Job", MANAGEMENT)
    )


def _in_the_way(record: Record, rules: Rules, cluster: str, since: float, until: float) -> bool:
    """Nobody was there to do it all the time, or could know of the Job; or the worker would not have answered."""
    lives = [life for life in record.lives if is_of(life.client, rules.dispatcher)]  # none: nobody noted any
    last = next((life for life in reversed(lives) if life.time <= until), None)
    if lives and (last is None or last.time >= since or last.what not in ("started", "resumed")):
        return True
    return contact.overlaps(contact.no_answers(record, rules.dispatcher, cluster), since, until) or contact.overlaps(
        contact.no_contact(record, rules.dispatcher, MANAGEMENT), since, until
    )


def workers_that_answer_are_not_lost(record: Record, rules: Rules) -> Iterator[Violation]:
    """I8: a worker is not given up while it answers what it is asked, however long it takes to write there."""
    connected: dict[str, str] = {}
    for seen in record.changes("WorkerCluster", MANAGEMENT):
        condition = find_condition(seen.status.get("conditions") or (), CONNECTED) or {}
        before = connected.get(seen.name)
        connected[seen.name] = now = str(condition.get("status"))
        if before != "True" or now != "False" or condition.get("reason") not in _NO_ANSWER:
            continue
        late = contact.spell_at(contact.no_contact(record, rules.dispatcher, MANAGEMENT), seen.time)
        since = (late[0] if late is not None else seen.time) - _NOTICED_LATE
        if not contact.overlaps(contact.no_reads(record, rules.dispatcher, seen.name), since, seen.time):
            text = f"{seen.name} answers, and is taken for lost: {condition.get('message')}"
            yield Violation("I8", text, (f"{seen.time:8.3f}  {condition.get('reason')}",))


def nothing_before_the_caches(record: Record, rules: Rules) -> Iterator[Violation]:
    """I9: a controller that starts has listed everything before it writes about any Job."""
    if not record.exchanges:
        return
    for life in record.lives:
        if life.what != "started" or not is_of(life.client, rules.dispatcher):
            continue
        start = life.time
        later = [each for each in record.exchanges if each.client == life.client and each.time > start]
        first = next((each for each in later if each.is_write and each.call.resource.startswith("jobs")), None)
        if first is None:
            continue
        listed = {
            each.call.resource
            for each in later
            if each.cluster == MANAGEMENT
            and each.call.verb in ("list", "watch")
            and each.told == 200
            and each.answered is not None
            and each.answered <= first.time
        }
        missing = [resource for resource in _NEEDED if resource not in listed]
        if missing:
            text = f"the {life.client} that started at {start:.3f} writes before it has listed {', '.join(missing)}"
            yield Violation("I9", text, (str(first),))


def no_work_is_thrown_away(record: Record, rules: Rules) -> Iterator[Violation]:
    """I9: a copy that works for a Job, is of its current attempt and has not ended is not deleted by the controller."""
    originals: dict[str, Json] = {}
    copies: dict[tuple[str, str], Json] = {}
    moments: list[tuple[float, int, Seen | Exchange]] = [(seen.time, 0, seen) for seen in record.changes("Job")]
    moments += [
        (each.answered or each.time, 1, each)
        for each in record.writes(rules.dispatcher)
        if each.call.verb == "delete" and each.call.resource == "jobs" and each.took_effect
    ]
    gone: dict[tuple[str, str], Seen] = {}
    marked: dict[str, float] = {}
    for _, _, moment in sorted(moments, key=lambda each: each[:2]):
        if isinstance(moment, Seen):
            if moment.cluster == MANAGEMENT and rules.labels.is_original(moment.object):
                if moment.type == "DELETED":
                    originals.pop(moment.uid, None)
                else:
                    originals[moment.uid] = moment.object
                _note_mark(marked, moment)
            elif rules.labels.is_copy(moment.object):
                copies[moment.cluster, moment.name] = moment.object
                if moment.type == "DELETED":
                    gone[moment.cluster, moment.name] = moment
            continue
        key = moment.cluster, f"{moment.call.namespace}/{moment.call.name}"
        copy = copies.get(key)
        original = originals.get(rules.labels.original_of(copy)) if copy is not None else None
        if copy is None or original is None or _stays_too_long(marked, original, moment):
            continue
        if _works_for(copy, moment.cluster, original, rules):
            yield Violation(
                "I9", f"{key[1]} runs on {key[0]} as it should, and the controller deletes it", (str(moment),)
            )


def _note_mark(marked: dict[str, float], seen: Seen) -> None:
    """Since when an original has been stopped for others, if it is."""
    if seen.type != "DELETED" and preempted_of(seen.object) is not None:
        marked.setdefault(seen.uid, seen.time)
    else:
        marked.pop(seen.uid, None)


def _stays_too_long(marked: Mapping[str, float], original: Json, deletion: Exchange) -> bool:
    """It was to stop so long ago that its copy may be deleted, for all that the controller knows of its pods."""
    return deletion.time - marked.get(original["metadata"]["uid"], deletion.time) >= _STUCK


def _works_for(copy: Json, cluster: str, original: Json, rules: Rules) -> bool:
    return (
        "deletionTimestamp" not in original["metadata"]
        and not is_finished(original.get("status") or {})
        and not is_finished(copy.get("status") or {})
        and rules.labels.is_current(copy, cluster, original)
    )


class _Term(NamedTuple):
    """From when on somebody leads, or nobody does."""

    since: float
    version: int
    leader: str


def leaders_alone_write(record: Record, rules: Rules) -> Iterator[Violation]:
    """I9: nothing is written by one who does not hold the lease, where there is one. One that never asks for it works
    alone, and only while nobody holds it.

    On the lease's own cluster the versions that the API server gave say what came first; elsewhere it is when the
    request had left its client, and when the leader was told that it leads. Whoever releases the lease has waited for
    the answers of its writes before.
    """
    leases = {each.version: each for each in record.writes() if each.call.resource == "leases"}
    terms = [
        _Term((change and change.answered) or seen.time, int(version), holder_of(seen.object))
        for seen in record.changes("Lease", MANAGEMENT)
        if seen.object["metadata"]["name"].startswith(rules.user_agent)
        for version in (seen.object["metadata"]["resourceVersion"],)
        for change in (leases.get(version),)
    ]
    asked = (each.client for each in record.writes(rules.dispatcher) if each.call.resource == "leases")
    candidates = {*asked, *(term.leader for term in terms)}
    for each in record.writes(rules.dispatcher):
        if not terms or not each.took_effect or each.call.resource in _EVERYBODYS:
            continue
        exact = each.cluster == MANAGEMENT and each.version.isdigit() and each.fault not in HELD_UP
        held = [term for term in terms if (term.version < int(each.version) if exact else term.since <= each.time)]
        leader = held[-1].leader if held else ""
        if leader != each.client and (leader or each.client in candidates):
            yield Violation("I9", f"{each.client} writes while {leader or 'nobody'} leads", (str(each),))


def controllers_stay_up(record: Record, rules: Rules) -> Iterator[Violation]:
    """I10: no controller ends by itself, unless its API server was out of reach, or it led and its lease ran out."""
    started: dict[str, float] = {}
    for life in record.lives:
        if life.what == "started":
            started[life.client] = life.time
        if life.what == "ended by itself":
            home = MANAGEMENT if is_of(life.client, rules.dispatcher) else life.client.rpartition("/")[2]
            since, client = started.get(life.client, 0.0) - 1.0, life.client.partition("/")[0]
            if not record.disturbed(home, since, life.time, client) and not _lease_ran_out(record, life):
                yield Violation("I10", f"{life.client} ended by itself at {life.time:.3f}", life.why)


def _lease_ran_out(record: Record, life: Life) -> bool:
    """For as long as a leader may go without it, no renewal was known to have worked: it was frozen, or starved."""
    lasts = [
        float(seen.object["spec"]["leaseDurationSeconds"])
        for seen in record.changes("Lease", MANAGEMENT)
        if holder_of(seen.object) == life.client and seen.time <= life.time
    ]
    renewed = [
        each.time
        for each in record.writes(life.client)
        if each.call.resource == "leases" and 200 <= each.told < 300 and each.time <= life.time
    ]
    return bool(lasts and renewed) and life.time - renewed[-1] >= lasts[-1] * _RELIED_ON


def nobody_is_hammered(record: Record, rules: Rules) -> Iterator[Violation]:
    """I8: a write that does not work is repeated ever more slowly, not in a loop."""
    failed: dict[tuple[str, str, str], list[Exchange]] = {}
    for each in record.writes(rules.dispatcher):
        if each.took_effect or each.fault in ("overload", "unauthorized"):
            continue
        about = failed.setdefault((each.cluster, each.call.resource, f"{each.call.namespace}/{each.call.name}"), [])
        about.append(each)
        if len(about) >= _STORM and each.time - about[-_STORM].time < _STORM_SECONDS:
            text = f"{_STORM} writes in {each.time - about[-_STORM].time:.1f} s that did not work"
            yield Violation("I8", text, (str(about[-_STORM]), str(each)))
            return
