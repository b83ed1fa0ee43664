"""What is promised to honest tenants beside a hostile one, checked on a record.

- their Jobs end as they should, and every other promise (I1 to I10) is kept for them;
- their Jobs wait at most twice as long as they do without the attacker: on average, and the one that waits longest;
- what the copies of a queue's Jobs have, summed over all workers, is never more than the queue's quota, whoever's they
  are and whatever was done to them. A copy has what its spec says: pods that still stop are not counted;
- nobody's Job runs in a queue that is not open to its namespace.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from faults.invariants import check
from faults.record import MANAGEMENT, Record, Seen
from faults.rules import Rules, Violation
from multimirror.api import QUEUE_LABEL
from multimirror.batch import is_finished
from multimirror.batch.quantities import quantity

Json = dict[str, Any]
FACTOR: Final = 2.0
SLACK: Final = 0.1
"""Seconds: below this, twice as long is nothing that anybody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """As much of a queue as the checks need."""

    namespaces: Collection[str] | None = None
    """Those that it is open to; None: all."""
    jobs: int | None = None
    cpu: Decimal | None = None

    @property
    def spec(self) -> Json:
        """The MirrorQueue."""
        quota: Json = {}
        if self.jobs is not None:
            quota["jobs"] = self.jobs
        if self.cpu is not None:
            quota["resources"] = {"cpu": str(self.cpu)}
        key = "kubernetes.io/metadata.name"
        named = [] if self.namespaces is None else [{"key": key, "operator": "In", "values": sorted(self.namespaces)}]
        return {
            "retention": "0s",
            "namespaceSelector": {"matchExpressions": named},
            **({"quota": quota} if quota else {}),
        }


def of_namespaces(record: Record, wanted: Callable[[str], bool]) -> Record:
    """The record of some tenants alone; what belongs to no namespace of theirs is everybody's."""
    seen = [
        each
        for each in record.seen
        if each.kind not in ("Job", "Pod", "Event") or wanted(each.object["metadata"].get("namespace", ""))
    ]
    exchanges = [each for each in record.exchanges if not each.call.namespace or wanted(each.call.namespace)]
    return Record(exchanges, seen, record.struck, record.lives)


def judge(
    record: Record, rules: Rules, queues: Mapping[str, Queue], attacker: str, *, lag: float = 0.0
) -> list[Violation]:
    """Everything that is wrong. `lag`: so much later than the copy a watch may show what was written before it."""
    honest = of_namespaces(record, lambda namespace: namespace != attacker)
    return [*check(honest, rules), *quota_holds(record, rules, queues, lag)]


def waits(record: Record, rules: Rules, attacker: str) -> dict[str, float]:
    """How long each honest Job waited for its first copy, by name."""
    made: dict[str, Seen] = {}
    waited: dict[str, float] = {}
    for seen in record.changes("Job"):
        if seen.object["metadata"].get("namespace") == attacker:
            continue
        if seen.cluster == MANAGEMENT:
            if rules.labels.is_original(seen.object):
                made.setdefault(seen.uid, seen)
        elif (original := rules.labels.original_of(seen.object)) in made:
            waited.setdefault(made[original].name, seen.time - made[original].time)
    return waited


def nobody_waits_too_long(
    without: Mapping[str, float], beside: Mapping[str, float], slack: float = SLACK
) -> Iterator[Violation]:
    """Twice as long as without the attacker, at most."""
    if not without:
        return
    for what, of in (("on average", _mean), ("at most", max)):
        before, now = of(without.values()), of(beside.values()) if beside else 0.0
        if now > FACTOR * before + slack:
            text = f"honest Jobs waited {now:.3f} s {what}, and {before:.3f} s without the attacker"
            yield Violation(
                "wait",
                text,
                tuple(f"{name}: {without.get(name, 0):.3f} s, {took:.3f} s" for name, took in beside.items()),
            )


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def quota_holds(record: Record, rules: Rules, queues: Mapping[str, Queue], lag: float = 0.0) -> Iterator[Violation]:
    """At each moment, what copies have is within the quota of the queue that their original was placed from.

    Watches of different clusters are not in step (`lag`): what is over the quota for no longer than that may be due to
    the end of another copy that is seen late.
    """
    admissions = _admissions(record, rules)
    admitted: dict[str, str] = {}
    held: dict[tuple[str, str], tuple[str, str, Decimal]] = {}
    over_since: dict[str, float] = {}
    told: set[str] = set()
    for seen in record.changes("Job"):
        if seen.cluster == MANAGEMENT:
            if rules.labels.is_original(seen.object) and rules.labels.cluster_of(seen.object) is not None:
                admitted.setdefault(f"{seen.uid}", str(seen.labels.get(QUEUE_LABEL, "")))
            elif rules.labels.cluster_of(seen.object) is None:
                admitted.pop(seen.uid, None)
            continue
        original = rules.labels.original_of(seen.object)
        if not original:
            continue
        before = held.pop((seen.cluster, seen.uid), None)
        queue = before[0] if before is not None else ""
        if not _is_over(seen):
            queue = admitted.get(original) or next(
                (named for time, named in admissions.get(original, ()) if 0 <= time - seen.time <= lag), ""
            )
            held[seen.cluster, seen.uid] = queue, seen.name, has(seen.object)
        elif before is None:
            continue
        mine = [(name, cpu) for other, name, cpu in held.values() if other == queue]
        misplaced = _misplaced(queue, queues, seen)
        if misplaced is not None:
            if queue not in told:
                told.add(queue)
                yield misplaced
            continue
        violation = _exceeded(queue, queues[queue], seen, mine)
        if violation is None:
            over_since.pop(queue, None)
        elif queue not in told and seen.time - over_since.setdefault(queue, seen.time) >= lag:
            told.add(queue)
            yield violation


def _admissions(record: Record, rules: Rules) -> dict[str, list[tuple[float, str]]]:
    """When each original was seen on a cluster, and in which queue."""
    found: dict[str, list[tuple[float, str]]] = {}
    for seen in record.changes("Job"):
        if seen.cluster == MANAGEMENT and rules.labels.cluster_of(seen.object) is not None:
            found.setdefault(seen.uid, []).append((seen.time, str(seen.labels.get(QUEUE_LABEL, ""))))
    return found


def _misplaced(queue: str, queues: Mapping[str, Queue], seen: Seen) -> Violation | None:
    found, evidence = queues.get(queue), (f"{seen.time:8.3f}  {seen.cluster}: {seen.name}",)
    if found is None:
        return Violation("quota", f"{seen.name} runs in no queue", evidence)
    if found.namespaces is not None and seen.object["metadata"]["namespace"] not in found.namespaces:
        return Violation("quota", f"{seen.name} runs in queue {queue}, which is not open to it", evidence)
    return None


def _exceeded(name: str, queue: Queue, seen: Seen, held: list[tuple[str, Decimal]]) -> Violation | None:
    evidence = (f"{seen.time:8.3f}  {seen.cluster}: {seen.name}", *(f"{copy} has {cpu}" for copy, cpu in held))
    total = sum((cpu for _, cpu in held), Decimal())
    if queue.cpu is not None and total > queue.cpu:
        text = f"the copies of queue {name} have {total} cpu, and its quota is {queue.cpu}"
        return Violation("quota", text, evidence)
    if queue.jobs is not None and len(held) > queue.jobs:
        return Violation("quota", f"queue {name} has {len(held)} copies, and its quota is {queue.jobs}", evidence)
    return None


def has(copy: Json) -> Decimal:
    """The cpu that a copy's pods may have at once."""
    spec, status = copy["spec"], copy.get("status") or {}
    count = spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        count = min(count, max(0, spec["completions"] - (status.get("succeeded") or 0)))
    containers = spec["template"]["spec"]["containers"]
    requests = [((each.get("resources") or {}).get("requests") or {}).get("cpu", "0") for each in containers]
    return sum((quantity(each) for each in requests), Decimal()) * int(count)


def _is_over(seen: Seen) -> bool:
    gone = seen.type == "DELETED" or "deletionTimestamp" in seen.object["metadata"]
    return gone or is_finished(seen.status) or bool(seen.object["spec"].get("suspend"))
