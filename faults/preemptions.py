"""Checks about Jobs that are stopped for others: P6 (who, and how often), P11 (pods first), P3 (no pods uncounted).

What runs is pods, as the clusters held them. Whoever is taken back keeps its worker until its pods are gone from there;
what a worker that could not be reached does meanwhile is excused as with I1, and pods of a copy that somebody deleted
are stopped by the cluster, unseen.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from faults import contact, fencing
from faults.charges import COUNTED, Change, Charge, Ledger, Library, changes
from faults.copies import Live, may_both_live
from faults.record import MANAGEMENT, Record, Seen
from faults.rules import Rules, Violation
from faults.strays import known

MOST_STOPS = 3
_ROUNDED = 1.0  # since when a Job runs is known by the second


def few_are_stopped(record: Record, rules: Rules) -> Iterator[Violation]:
    """P6: nobody is stopped for others more than three times (Priority aside), nor before its queue's minRuntime is
    over (half of it counts for Reclaim), nor at all who must not be."""
    library = Library(record, rules)
    stops: Counter[str] = Counter()
    for change in changes(record, rules):
        victim = change.after
        if victim is None or not change.is_mark:
            continue
        stops[victim.uid] += victim.why in COUNTED
        moment = f"{change.time:8.3f}  {victim.why} by {victim.by}"
        if stops[victim.uid] > MOST_STOPS and victim.why in COUNTED:
            yield Violation("P6", f"{victim.name} is stopped for the {stops[victim.uid]}th time", (moment,))
        if victim.firm:
            yield Violation("P6", f"{victim.name} is stopped for another, and must not be", (moment,))
        least = min(
            (_protected(each.queues.get(victim.queue), victim) for each in library.known(change.time)), default=0.0
        )
        if change.time - victim.since < least - _ROUNDED:
            text = (
                f"{victim.name} is stopped {change.time - victim.since:.1f} s after it was placed, and has {least:g} s"
            )
            yield Violation("P6", text, (moment,))


def _protected(queue: object, victim: Charge) -> float:
    runtime = float(getattr(queue, "min_runtime", 0.0))
    return runtime / 2 if victim.why == "Reclaim" else runtime


@dataclass(slots=True)
class _Copy:
    live: Live
    original: str
    deleted: bool = False
    pods: dict[str, float] = field(default_factory=dict)
    """Those that run or stop, and since when."""
    starting: set[str] = field(default_factory=set)
    """Those of them that nobody has told to stop."""

    def __str__(self) -> str:
        since = min(self.pods.values(), default=self.live.since)
        whose = f"attempt {self.live.attempt} of {self.live.name} on {self.live.cluster}"
        return f"{since:8.3f}  {len(self.pods)} pods of {whose}"


class _Pods:
    """The copies and their pods, as a record goes on."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.copies: dict[str, _Copy] = {}

    def note(self, seen: Seen) -> _Copy | None:
        """Gives the copy whose first or next pod has appeared."""
        if (
            seen.kind == "Job"
            and seen.cluster != MANAGEMENT
            and (original := self._rules.labels.original_of(seen.object))
        ):
            attempt = self._rules.labels.attempt_of(seen.object)
            live = Live(seen.cluster, seen.uid, attempt, seen.time, seen.name)
            copy = self.copies.setdefault(seen.uid, _Copy(live, original))
            copy.deleted = copy.deleted or seen.type == "DELETED" or "deletionTimestamp" in seen.object["metadata"]
        if seen.kind != "Pod":
            return None
        owners = (each["uid"] for each in seen.object["metadata"].get("ownerReferences") or ())
        owner = next((self.copies[uid] for uid in owners if uid in self.copies), None)
        if owner is None:
            return None
        over = seen.type == "DELETED" or seen.status.get("phase") in ("Succeeded", "Failed")
        if over or "deletionTimestamp" in seen.object["metadata"]:
            owner.starting.discard(seen.uid)
        if over:
            owner.pods.pop(seen.uid, None)
            return None
        if seen.uid in owner.pods:
            return None
        owner.pods[seen.uid] = seen.time
        owner.starting.add(seen.uid)
        return owner

    def of(self, charge: Charge) -> Iterator[_Copy]:
        """The copies of that attempt."""
        for copy in self.copies.values():
            if copy.original == charge.uid and copy.live.attempt == charge.attempt:
                yield copy

    def running(self, charge: Charge) -> list[_Copy]:
        """Those that have pods, and that nobody has deleted."""
        return [copy for copy in self.of(charge) if copy.pods and not copy.deleted]


def pods_go_first(record: Record, rules: Rules) -> Iterator[Violation]:
    """P11: who is stopped keeps its worker until its pods are gone from there; who it is stopped for is not placed
    there before, unless both have room; and its next copy starts no pod before. P3: no copy has more pods than are
    counted."""
    return _Course(record, rules).violations()


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """Pods that should not be there; if they are not gone at once, for watches are not in step."""

    violation: Violation
    copy: _Copy
    pods: frozenset[str]
    time: float


class _Course:
    """A record from its beginning to its end."""

    def __init__(self, record: Record, rules: Rules) -> None:
        self._record, self._rules = record, rules
        self._pods, self._ledger = _Pods(rules), Ledger(rules)
        self._fenced = fencing.fences(record, rules)
        self._victims: dict[str, list[Charge]] = {}
        """By the uid of the one that they were stopped for, each as it was then."""
        self._stopped: set[tuple[str, str]] = set()
        """Originals and attempts that were taken back."""
        self._gone: set[str] = set()
        """Originals that were deleted: what becomes of their pods nobody waits for."""
        self._suspicions: list[_Suspicion] = []
        self._excess: list[_Suspicion] = []
        """More pods than are counted: a Job controller that is told of a new size may be starting one just then."""

    def violations(self) -> Iterator[Violation]:
        for seen in known(self._record, self._rules):
            yield from self._confirmed(seen.time - self._rules.heard_late)
            started = self._pods.note(seen)
            if started is not None:
                self._more_than_counted(started, seen.time)
                self._in_two_places(started, seen.time)
            change = self._ledger.look(seen)
            if change is not None:
                self._left(change)
                self._ledger.note(change)
                self._placed(change)
        yield from self._confirmed(float("inf"))

    def _confirmed(self, before: float) -> Iterator[Violation]:
        due = [each for each in self._suspicions if each.time < before]
        if due:
            self._suspicions = [each for each in self._suspicions if each.time >= before]
            yield from (each.violation for each in due if each.pods & each.copy.pods.keys())
        late = before - self._rules.patience
        excess = [each for each in self._excess if each.time < late]
        if excess:
            self._excess = [each for each in self._excess if each.time >= late]
            yield from (each.violation for each in excess if each.pods <= each.copy.starting)

    def _suspect(self, text: str, copy: _Copy, time: float) -> None:
        after = Live("", "", f"{copy.live.order + 1}", time, copy.live.name)
        if not may_both_live(self._record, self._rules, copy.live, after, fenced=self._fenced(copy.original)):
            violation = Violation("P11", text, (str(copy), f"{time:8.3f}  now"))
            self._suspicions.append(_Suspicion(violation, copy, frozenset(copy.pods), time))

    def _left(self, change: Change) -> None:
        """Who was being stopped has lost its worker."""
        before, job = change.before, change.seen.object
        if change.seen.type == "DELETED":
            self._gone.add(change.seen.uid)
        if before is None or not before.why:
            return
        self._stopped.add((before.uid, before.attempt))
        if change.seen.type != "DELETED" and self._rules.labels.cluster_of(job) != before.worker:
            for copy in self._pods.running(before):
                self._suspect(
                    f"{before.name} was stopped, and is taken from {before.worker} before its pods", copy, change.time
                )

    def _placed(self, change: Change) -> None:
        """One that others were stopped for has a worker. Victims that are still charged there have room beside it."""
        if change.is_mark and change.after is not None:
            self._victims.setdefault(change.after.by, []).append(change.after)
        after = change.after
        if after is None or (change.before is not None and change.before.attempt == after.attempt):
            return
        for victim in self._victims.get(after.uid, ()):
            now = self._ledger.charges.get(victim.uid)
            there = now is not None and now.attempt == victim.attempt
            if victim.worker == after.worker and not there and victim.uid not in self._gone:
                for copy in self._pods.running(victim):
                    self._suspect(
                        f"{after.name} is placed on {after.worker} before the pods of {victim.name} are gone",
                        copy,
                        change.time,
                    )

    def _in_two_places(self, started: _Copy, time: float) -> None:
        """A pod starts, and one of an earlier attempt that was taken back is still there."""
        for copy in self._pods.copies.values():
            if copy.original == started.original and copy is not started and copy.pods and not copy.deleted:
                if (copy.original, copy.live.attempt) in self._stopped:
                    self._suspect(f"{started.live.name} starts again before its earlier pods are gone", copy, time)

    def _more_than_counted(self, started: _Copy, time: float) -> None:
        charge = self._ledger.charges.get(started.original)
        if contact.spell_at(contact.no_contact(self._record, self._rules.job_controller, started.live.cluster), time):
            return  # it may have made a pod and not know: its own to put right
        if charge is not None and charge.attempt == started.live.attempt and 0 < charge.pods < len(started.starting):
            text = f"{charge.name} has {len(started.starting)} pods on {charge.worker}, and {charge.pods} are counted"
            violation = Violation("P3", text, (f"{time:8.3f}  now",))
            self._excess.append(_Suspicion(violation, started, frozenset(started.starting), time))
