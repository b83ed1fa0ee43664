"""What is charged to queues and workers, and who is stopped for whom: read off the originals as they were written.

A Job is charged from the write that assigns it until the write that takes its worker away, or its end. What for is what
was written down with it (the annotation `reserved`), read here once more by a reader of our own. What queues, cohorts
and workers had to give is read off their objects; a change of theirs is known to the dispatcher a while after it was
made, so that each moment has several books by which it may have decided (`Books.known`). Amounts are thousandths of a
cpu: the one resource of these runs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from faults import contact
from faults.record import MANAGEMENT, Record, Seen
from faults.rules import Rules
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    PREEMPTED_ANNOTATION,
    PREEMPTED_BY_ANNOTATION,
    PREEMPTIBLE_LABEL,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
)
from multimirror.batch import is_finished
from multimirror.batch.durations import parse_duration
from multimirror.batch.quantities import quantity

Json = dict[str, Any]
FOR_OTHERS: Final = ("Reclaim", "Priority", "FairShare")
COUNTED: Final = ("Reclaim", "FairShare")


@dataclass(frozen=True, slots=True)
class Charge:
    """One Job that has a worker."""

    uid: str
    name: str
    queue: str
    worker: str
    attempt: str
    pods: int
    cpu: int
    why: str = ""
    """Why it is being stopped; empty: it is not."""
    by: str = ""
    """The uid of the Job that it is stopped for."""
    since: float = 0.0
    """When it was assigned."""
    firm: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A write that changed what one Job is charged."""

    seen: Seen
    before: Charge | None
    after: Charge | None
    charges: Mapping[str, Charge]
    """All of them, as they were before; to be looked at now, for it goes on changing."""

    @property
    def time(self) -> float:
        """When."""
        return self.seen.time

    @property
    def is_mark(self) -> bool:
        """It begins to be stopped for another one."""
        return (
            self.before is not None and self.after is not None and not self.before.why and self.after.why in FOR_OTHERS
        )


def charge_of(rules: Rules, seen: Seen) -> Charge | None:
    """What a state of an original is charged."""
    job = seen.object
    worker = rules.labels.cluster_of(job)
    if seen.type == "DELETED" or worker is None or is_finished(seen.status) or not rules.labels.is_original(job):
        return None
    annotations: Json = job["metadata"].get("annotations") or {}
    pods, cpu = _reserved(annotations.get(RESERVED_ANNOTATION))
    return Charge(
        seen.uid,
        seen.name,
        str(annotations.get(ADMITTED_QUEUE_ANNOTATION) or seen.labels.get(QUEUE_LABEL, "")),
        worker,
        str(annotations.get(ATTEMPT_ANNOTATION, "")),
        pods,
        cpu,
        str(annotations.get(PREEMPTED_ANNOTATION) or ""),
        str(annotations.get(PREEMPTED_BY_ANNOTATION) or ""),
        seen.time,
        seen.labels.get(PREEMPTIBLE_LABEL) == "false",
    )


def _reserved(text: str | None) -> tuple[int, int]:
    sets = json.loads(text)["podSets"] if text else ()
    return sum(each["count"] for each in sets), sum(each["count"] * _cpu(each["requests"]) for each in sets)


def _cpu(amounts: Mapping[str, Any]) -> int:
    return int(quantity(str(amounts.get("cpu", 0))) * 1000)


class Ledger:
    """What is charged, as a record goes on."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.charges: dict[str, Charge] = {}

    def look(self, seen: Seen) -> Change | None:
        """Whether it changes what a Job is charged; the ledger is as it was before until `note`."""
        if seen.kind != "Job" or seen.cluster != MANAGEMENT:
            return None
        before, after = self.charges.get(seen.uid), charge_of(self._rules, seen)
        if before is not None and after is not None and before.attempt == after.attempt:
            after = replace(after, since=before.since)
        return Change(seen, before, after, self.charges) if before != after else None

    def note(self, change: Change) -> None:
        """It is so."""
        if change.after is None:
            del self.charges[change.seen.uid]
        else:
            self.charges[change.seen.uid] = change.after


def changes(record: Record, rules: Rules) -> Iterator[Change]:
    """All, in the order of the writes."""
    ledger = Ledger(rules)
    for seen in record.changes("Job", MANAGEMENT):
        change = ledger.look(seen)
        if change is not None:
            yield change
            ledger.note(change)


def queues_of(record: Record) -> dict[str, str]:
    """By uid of an original: the queue that it asks for."""
    return {seen.uid: seen.labels.get(QUEUE_LABEL, "") for seen in record.changes("Job", MANAGEMENT)}


# --- what there is to give --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A queue or a cohort: what it has, and with whom it shares. None: no limit."""

    parent: str | None = None
    own: int | None = None
    borrow: int | None = None
    lend: int | None = None
    jobs: int | None = None
    min_runtime: float = 0.0


@dataclass(frozen=True, slots=True)
class Books:
    """What everybody had at one time."""

    queues: Mapping[str, Member] = field(default_factory=dict)
    cohorts: Mapping[str, Member] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Of workers that declare it."""

    def net(self, used: Mapping[str, int]) -> dict[str, int]:
        """What each queue and each cohort has left over; negative: what it borrows. Cohorts are `cohort NAME`.

        A queue has left what it does not use of its own; a cohort, its own and what its members leave over, of which
        each gives no more than it lends, less what its other members borrow.
        """
        found: dict[str, int] = {}
        for name, queue in self.queues.items():
            if self._counts(queue):
                found[name] = (queue.own or 0) - used.get(name, 0)
        for name in self._upwards():
            cohort = self.cohorts.get(name, Member())
            members = [
                (found[key], queue) for key, queue in self.queues.items() if queue.parent == name and key in found
            ]
            members += [
                (found[f"cohort {key}"], each)
                for key, each in self.cohorts.items()
                if each.parent == name and f"cohort {key}" in found
            ]
            left = sum(net if each.lend is None else min(net, each.lend) for net, each in members)
            found[f"cohort {name}"] = (cohort.own or 0) + left
        return found

    @property
    def generous(self) -> "Books":
        """The same, if everybody lent all that he has."""
        queues, cohorts = (
            {name: replace(each, lend=None) for name, each in table.items()} for table in (self.queues, self.cohorts)
        )
        return replace(self, queues=queues, cohorts=cohorts)

    def limits(self, queue: str) -> Iterator[tuple[str, int]]:
        """On the way from a queue to its root: how much each may borrow at most."""
        key, at = queue, self.queues.get(queue)
        while at is not None:
            if at.parent is None:
                yield key, 0
                return
            if at.borrow is not None:
                yield key, at.borrow
            key, at = f"cohort {at.parent}", self.cohorts.get(at.parent, Member())

    def _counts(self, queue: Member) -> bool:
        """It lists cpu, or somebody above it does."""
        at: Member | None = queue
        while at is not None:
            if at.own is not None or at.borrow is not None:
                return True
            at = self.cohorts.get(at.parent, Member()) if at.parent is not None else None
        return False

    def _upwards(self) -> list[str]:
        """All cohorts, each after those below it."""
        named = {each.parent for each in (*self.queues.values(), *self.cohorts.values())} | set(self.cohorts)
        return sorted((name for name in named if name is not None), key=lambda name: (-self._depth(name), name))

    def _depth(self, name: str) -> int:
        parent = self.cohorts.get(name, Member()).parent
        return 0 if parent is None else 1 + self._depth(parent)


class Library:
    """All books of a run; those from before the first Job are nobody's, for queues are made one after the other."""

    def __init__(self, record: Record, rules: Rules) -> None:
        self._states: list[tuple[float, Books]] = [(0.0, Books())]
        self._patience = rules.patience
        self._spells = contact.no_contact(record, rules.dispatcher, MANAGEMENT)
        begun = False
        for seen in record.seen:
            begun = begun or (seen.cluster == MANAGEMENT and seen.kind == "Job")
            if seen.cluster == MANAGEMENT and seen.kind in ("MirrorQueue", "Cohort", "WorkerCluster"):
                after = _changed(self._states[-1][1], seen)
                if not begun:
                    self._states = [(0.0, after)]
                elif after != self._states[-1][1]:
                    self._states.append((seen.time, after))

    def since(self, moment: float) -> float:
        """What was so before that, and has not been since, the dispatcher could not go by at that moment."""
        spell = contact.spell_at(self._spells, moment)
        return (spell[0] if spell is not None else moment) - self._patience

    def until(self, moment: float) -> float:
        """What it has decided at that moment is written by then."""
        spell = contact.spell_at(self._spells, moment)
        return (spell[1] if spell is not None else moment) + self._patience

    def known(self, moment: float) -> list[Books]:
        """The books by which it may have decided."""
        since = self.since(moment)
        later = [books for time, books in self._states if since < time <= moment]
        before = [books for time, books in self._states if time <= since]
        return [*before[-1:], *later]


def _changed(books: Books, seen: Seen) -> Books:
    queues, cohorts, capacity = dict(books.queues), dict(books.cohorts), dict(books.capacity)
    name, spec = seen.object["metadata"]["name"], seen.object.get("spec") or {}
    table = cohorts if seen.kind == "Cohort" else queues
    if seen.kind == "WorkerCluster":
        capacity.pop(name, None)
        declared = (spec.get("capacity") or {}).get("resources") or {}
        if "cpu" in declared and seen.type != "DELETED":
            capacity[name] = _cpu(declared)
    elif seen.type == "DELETED":
        table.pop(name, None)
    else:
        quota = spec.get("quota") or {}
        own, borrow, lend = (
            _cpu(quota[part]) if "cpu" in (quota.get(part) or {}) else None for part in ("resources", "borrow", "lend")
        )
        parent = spec.get("cohort") if seen.kind == "MirrorQueue" else spec.get("parent")
        runtime = parse_duration(str(spec.get("minRuntime") or "0s")).total_seconds()
        table[name] = Member(parent, own, borrow, lend, quota.get("jobs"), runtime)
    return Books(queues, cohorts, capacity)


def used(charges: Iterable[Charge]) -> dict[str, int]:
    """By queue."""
    found: dict[str, int] = {}
    for each in charges:
        found[each.queue] = found.get(each.queue, 0) + each.cpu
    return found


def cpus(amount: int) -> str:
    """In words."""
    return f"{Decimal(amount) / 1000:g} cpu"


def counts(record: Record, rules: Rules) -> Counter[str]:
    """How much sharing there was: placements, those on what a queue has borrowed, and preemptions, by the reason."""
    found: Counter[str] = Counter()
    library = Library(record, rules)
    for change in changes(record, rules):
        after = change.after
        if after is not None and change.is_mark:
            found[after.why] += 1
        if after is not None and (change.before is None or change.before.attempt != after.attempt):
            found["placed"] += 1
            now = {**change.charges, after.uid: after}
            net = library.known(change.time)[-1].net(used(now.values()))
            found["borrowing"] += net.get(after.queue, 0) < 0
    return +found
