"""Checks about what is charged: P1 (quota), P2 (lending, own quota), P3 (workers).

Whatever is over a limit may stay so, for quotas are lowered and workers shrink; but it must not grow. So each write
that makes something larger is looked at, and what it makes larger: a queue's use, what a cohort's members together take
from the rest of its tree, what a worker holds. It is wrong where it is by all books that the dispatcher may have known.
"""

from collections.abc import Iterable, Iterator

from faults.charges import Books, Change, Charge, Library, changes, cpus, queues_of, used
from faults.plan import HELD_UP
from faults.record import MANAGEMENT, Exchange, Record, Seen, is_of
from faults.rules import Rules, Violation


def quota_holds(record: Record, rules: Rules) -> Iterator[Violation]:
    """P1, P2: nothing is placed, and nothing grows, beyond what its queue, and each cohort above it, may use; with
    that, nobody gets more of what a queue has than it lends. P3: nor beyond what its worker has."""
    library = Library(record, rules)
    for change in changes(record, rules):
        after = change.after
        if after is None or _size(change.before, after) == (0, 0):
            continue
        found = [_exceeded(change, after, books) for books in library.known(change.time)]
        if all(found) and not _came_late(record, rules, change.seen):
            invariant, text = next(each for each in reversed(found) if each)
            yield Violation(
                invariant, text, (f"{change.time:8.3f}  {_told(after)}", *map(_told, change.charges.values()))
            )


def _size(before: Charge | None, after: Charge) -> tuple[int, int]:
    """By how many Jobs and how much cpu there is more."""
    if before is None or (before.attempt, before.worker, before.queue) != (after.attempt, after.worker, after.queue):
        return 1, after.cpu
    return 0, max(0, after.cpu - before.cpu)


def _exceeded(change: Change, after: Charge, books: Books) -> tuple[str, str] | None:
    """What is over its limit because of this change, by these books."""
    now = {**change.charges, after.uid: after}
    queue = books.queues.get(after.queue)
    jobs, cpu = _size(change.before, after)
    running = sum(1 for each in now.values() if each.queue == after.queue)
    if jobs and queue is not None and queue.jobs is not None and running > queue.jobs:
        return "P1", f"queue {after.queue} has {running} Jobs placed, and its quota is {queue.jobs}"
    if not cpu:
        return None
    before = [each for each in change.charges.values() if each.uid != after.uid or not jobs]
    text = _borrowed(books, before, now.values(), after.queue)
    if text is not None and _borrowed(books.generous, before, now.values(), after.queue) is None:
        return "P2", f"{text}: others lend no more"
    if text is not None:
        return "P1", text
    there = sum(each.cpu for each in now.values() if each.worker == after.worker)
    if there > books.capacity.get(after.worker, there):
        return "P3", f"{after.worker} is given {cpus(there)}, and has {cpus(books.capacity[after.worker])}"
    return None


def _borrowed(books: Books, before: Iterable[Charge], now: Iterable[Charge], queue: str) -> str | None:
    """What a queue, or a cohort above it, borrows beyond its limit, where it is more than before."""
    earlier, later = books.net(used(before)), books.net(used(now))
    for key, limit in books.limits(queue):
        if key in later and later[key] < min(-limit, earlier[key]):
            return f"{key} borrows {cpus(-later[key])}, and may borrow {cpus(limit)}"
    return None


def _came_late(record: Record, rules: Rules, seen: Seen) -> bool:
    """The write was held up on its way, and its dispatcher did not live to see it: nobody could know of it."""
    made = _write_of(record, seen)
    return made is not None and made.fault in HELD_UP and _died_before(record, rules, made, seen.time)


def _died_before(record: Record, rules: Rules, sent: Exchange, moment: float) -> bool:
    """Who sent it did not live until then."""
    return any(
        sent.time <= life.time <= moment and life.what != "started" and is_of(life.client, rules.dispatcher)
        for life in record.lives
    )


def _write_of(record: Record, seen: Seen) -> Exchange | None:
    version = seen.object["metadata"]["resourceVersion"]
    return next(
        (each for each in record.writes(cluster=MANAGEMENT) if each.took_effect and each.version == version), None
    )


def own_quota_is_safe(record: Record, rules: Rules) -> Iterator[Violation]:
    """P2: a queue within its own quota loses no Job to another queue, those that it is losing already left out.

    What is decided together is written side by side: a queue whose next Job is placed a moment later has that, too."""
    library, queues = Library(record, rules), queues_of(record)
    history, marks = _history(record, rules)
    for time, victim, evidence in marks:
        if queues.get(victim.by) == victim.queue:
            continue
        since, until = library.since(time), library.until(time)
        before = [staying.get(victim.queue, 0) for at, staying in history if at <= since][-1:]
        before += [staying.get(victim.queue, 0) for at, staying in history if since < at < time]
        later = [staying.get(victim.queue, 0) + victim.cpu for at, staying in history if time <= at <= until]
        most = max([*before, *later], default=0)
        known = [each for books in library.known(time) if (each := books.queues.get(victim.queue))]
        own = min((each.own or 0 for each in known), default=None)
        if own is not None and most <= own:
            text = f"queue {victim.queue} has {cpus(most)} of its own {cpus(own)}, and {victim.name} is stopped"
            yield Violation("P2", f"{text} for another queue ({victim.why})", evidence)


_Marked = tuple[float, Charge, tuple[str, ...]]


def _history(record: Record, rules: Rules) -> tuple[list[tuple[float, dict[str, int]]], list[_Marked]]:
    """What the Jobs of each queue have that are not being stopped, after each change; and who began to be stopped."""
    history: list[tuple[float, dict[str, int]]] = []
    marks: list[_Marked] = []
    for change in changes(record, rules):
        after = change.after
        if after is not None and change.is_mark:
            evidence = (f"{change.time:8.3f}  {_told(after)}", *map(_told, change.charges.values()))
            marks.append((change.time, after, evidence))
        others = [each for uid, each in change.charges.items() if uid != change.seen.uid]
        now = [*others, after] if after is not None else others
        history.append((change.time, used(each for each in now if not each.why)))
    return history, marks


def _told(charge: Charge) -> str:
    leaving = f", being stopped ({charge.why})" if charge.why else ""
    return f"{charge.name}: {cpus(charge.cpu)} of queue {charge.queue} on {charge.worker}{leaving}"
