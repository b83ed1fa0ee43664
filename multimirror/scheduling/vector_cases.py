"""Recorded situations of queueing, replayed with our rules: what is in a case, and what we do about it.

A case describes queues, cohorts and Jobs in another scheduler's words (Kueue's), and what that one decides. Policies
become ours as far as we have them: `within` LowerPriority is Priority, `reclaim` Any is Reclaim, and where shares
decide there (`fairSharing`), FairShare too. Everything is answered by the functions that the planner uses.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts, QueueingStrategy, Quota
from multimirror.batch import Json
from multimirror.batch.quantities import quantity
from multimirror.kinds.pod_sets import Amounts, amount_text, nanos
from multimirror.scheduling.heads import Head, HeadOrder
from multimirror.scheduling.preemption import kept_free
from multimirror.scheduling.quota import QuotaTree, QuotaUsage
from multimirror.scheduling.running import RunningJob, victim_order
from multimirror.scheduling.shares import Share, share_of_cohort, share_of_queue
from multimirror.scheduling.sharing import Outcome
from multimirror.scheduling.simulation import SimulatedJob, Simulation
from multimirror.scheduling.victims import Preemptor

REASONS: Final = {
    "InClusterQueue": "Priority",
    "InCohortReclamation": "Reclaim",
    "InCohortFairSharing": "FairShare",
}
_OUTCOMES: Final = {
    "FailedAfterNomination": Outcome.LOST,
    "PendingPreemption": Outcome.WAITS_FOR_VICTIMS,
    "PreemptionFailed": Outcome.NOT_STOPPED,
    "PreemptionNoCandidates": Outcome.NOBODY_TO_STOP,
    "NamespaceMismatch": Outcome.NOT_ALLOWED,
}


def amounts(requests: Mapping[str, object]) -> dict[str, int]:
    return {name: nanos(quantity(value)) for name, value in requests.items()}


def a_quota(given: Mapping[str, Json]) -> Quota:
    def of(field: str) -> dict[str, Any]:
        return {name: quantity(each[field]) for name, each in given.items() if each.get(field) is not None}

    return Quota(resources=of("nominal"), borrow=of("borrowingLimit"), lend=of("lendingLimit"))


def a_weight(given: Json) -> Fraction:
    weight = given.get("weight")
    return Fraction(1) if weight is None else Fraction(str(weight))


def a_queue(given: Json, *, fair: bool) -> MirrorQueueSpec:
    policy = given.get("preemption") or {}
    preempts = set()
    if policy.get("within", "Never") != "Never":
        preempts.add(Preempts.PRIORITY)
    if policy.get("reclaim") == "Any" and given.get("cohort") is not None:
        preempts |= {Preempts.RECLAIM, Preempts.FAIR_SHARE} if fair else {Preempts.RECLAIM}
    return MirrorQueueSpec(
        cohort=given.get("cohort"),
        weight=a_weight(given),
        quota=a_quota(given.get("quota") or {}),
        preempts=frozenset(preempts),
        queueing_strategy=QueueingStrategy(given.get("strategy") or QueueingStrategy.BEST_EFFORT_FIFO),
    )


def a_cohort(given: Json) -> CohortSpec:
    return CohortSpec(parent=given.get("parent"), weight=a_weight(given), quota=a_quota(given.get("quota") or {}))


def a_job(given: Json, *, running: bool = False) -> SimulatedJob:
    return SimulatedJob(
        name=given["name"],
        queue=given.get("queue", ""),
        requests=amounts(given.get("requests") or {}),
        priority=given.get("priority", 0),
        age=max(given.get("created", 0), given.get("notReadyEvictedAt", given.get("created", 0))),
        uid=given.get("uid", ""),
        placed=float(given.get("reserved", 0)) if running else None,
        leaving=bool(given.get("evicted")),
    )


def several(given: Json) -> list[Json]:
    """`times`: so many, with a number each."""
    if "times" not in given:
        return [given]
    return [{**given, "name": f"{given['name']}-{number}"} for number in range(1, given["times"] + 1)]


def a_simulation(case: Json) -> Simulation:
    fair = "fairSharing" in case
    jobs = [a_job(each, running=True) for given in case.get("running") or () for each in several(given)]
    jobs += [a_job(each) for given in case.get("pending") or () for each in several(given)]
    return Simulation(
        {each["name"]: a_queue(each, fair=fair) for each in case["queues"]},
        {each["name"]: a_cohort(each) for each in case["cohorts"]},
        jobs,
        most_stops=None,
    )


def answer_pass(case: Json) -> Json:
    """One pass, of the first Job of each queue."""
    result = a_simulation(case).run_pass(heads_only=True)
    return {
        "admitted": sorted(job.name for job in result.placed),
        "preempted": {victim.job.name: str(victim.reason) for victim in result.stopped},
    }


def answer_share(case: Json) -> Json:
    usage = a_simulation(case).usage()

    def of(name: str) -> Json:
        kind, _, cohort = name.partition(":")
        found = share_of_cohort(usage, cohort) if kind == "cohort" and cohort else share_of_queue(usage, name)
        return {"share": shown(found), "resource": found.resource, "borrows": found.borrows}

    return {"shares": {name: of(name) for name in case["expect"]["shares"]}}


def shown(found: Share) -> int | str:
    thousandths = found.thousandths
    return "infinite" if thousandths is None else thousandths


def answer_available(case: Json) -> Json:
    usage = a_simulation(case).usage()

    def each(field: str, of: Callable[[str, str], int | None]) -> Json:
        expected = case["expect"].get(field) or {}
        return {queue: {name: _text(of(queue, name)) for name in names} for queue, names in expected.items()}

    return {"available": each("available", usage.available), "most": each("most", usage.most)}


def _text(amount: int | None) -> str:
    return "unlimited" if amount is None else amount_text(amount)


def answer_victims(case: Json) -> Json:
    """Those that are leaving count as gone before anybody is stopped; other queues are asked before the own one."""
    own = case["preemptorQueue"]
    jobs = [a_job(each, running=True) for each in case["running"]]

    def order(job: SimulatedJob) -> tuple[bool, bool, tuple[int, float, str]]:
        running = RunningJob(uid=job.uid, queue=job.queue, requests={}, priority=job.priority, placed=job.placed or 0.0)
        return not job.leaving, job.queue == own, victim_order(running)

    return {"order": [job.name for job in sorted(jobs, key=order)]}


def answer_policy(case: Json) -> Json:
    """Reclaim asks nobody's priority; for Priority one is stopped that is lower."""
    if case["policy"] == "Any":
        return {"mayPreempt": True}
    candidate, preemptor = a_job(case["running"][0], running=True), a_job(case["pending"][0])
    spec = MirrorQueueSpec(
        quota=a_quota({"cpu": {"nominal": "1"}}),
        preempts=frozenset({Preempts.PRIORITY} if case["policy"] == "LowerPriority" else ()),
    )
    result = Simulation({candidate.queue: spec}, {}, [candidate, preemptor]).run_pass()
    return {"mayPreempt": bool(result.stopped)}


def answer_order(case: Json) -> Json:
    jobs = [a_job(each) for each in case["pending"]]
    first = min(jobs, key=lambda job: job.order)
    return {"first": first.name}


def answer_heads(case: Json) -> Json:
    """Jobs are given with how far they borrow. They are put into queues of a chain of cohorts, each of which has one
    more than the one below it, and those that borrow ask for as many: so they borrow as far as they are said to."""
    jobs = [(a_job(each), each.get("borrowDistance", 0)) for each in case["pending"]]
    highest = max((distance for _, distance in jobs), default=0)
    one = a_quota({"cpu": {"nominal": "1"}})
    cohorts = {str(height): CohortSpec(parent=str(height + 1), quota=one) for height in range(1, highest + 1)}
    own, none = a_quota({"cpu": {"nominal": "1", "lendingLimit": "0"}}), a_quota({"cpu": {"nominal": "0"}})
    specs = {job.name: MirrorQueueSpec(cohort="1", quota=own if distance == 0 else none) for job, distance in jobs}
    usage = QuotaUsage(QuotaTree(specs, cohorts))
    order = HeadOrder(usage)
    for job, distance in jobs:
        requests = {"cpu": nanos(max(1, distance))}
        if usage.distance(job.name, requests) != distance:
            raise ValueError(f"{job.name} borrows {usage.distance(job.name, requests)} far, not {distance}")
        order.put(job.name, Head(job.name, requests, job.order))
    found = []
    while (head := order.best()) is not None:
        found.append(head.queue)
        order.put(head.queue, None)
    return {"order": found}


def answer_reserve(case: Json) -> Json:
    """What fits is placed, and so has all that it asks for; what does not keeps own quota."""
    spec = case["queues"][0]
    queue = a_queue(spec, fair=False)
    requests = amounts(case["head"]["requests"])
    usage = QuotaUsage(QuotaTree({spec["name"]: queue}), {spec["name"]: amounts(case["use"])})
    kept: Amounts = requests
    if case["head"]["mode"] != "Fit":
        kept = kept_free(usage, Preemptor(uid="", queue=spec["name"], requests=requests, preempts=queue.preempts))
    return {"reserved": {name: amount for name, amount in kept.items() if amount}}


def expected_reserve(expect: Json) -> Json:
    return {"reserved": {name: amount for name, amount in amounts(expect["reserved"]).items() if amount}}


def answer_park(case: Json) -> Json:
    strict = case["queues"][0].get("strategy") == QueueingStrategy.STRICT_FIFO
    again = _OUTCOMES.get(case["outcome"], Outcome.NO_FIT).is_tried_again(strict=strict)
    names = [each["name"] for each in case["pending"]]
    return {"stillQueued": names if again else [], "parked": [] if again else names}


ANSWERS: Final[Mapping[str, Callable[[Json], Json]]] = {
    "preempt": answer_pass,
    "cycle": answer_pass,
    "share": answer_share,
    "available": answer_available,
    "victims": answer_victims,
    "policy": answer_policy,
    "order": answer_order,
    "heads": answer_heads,
    "reserve": answer_reserve,
    "park": answer_park,
}
