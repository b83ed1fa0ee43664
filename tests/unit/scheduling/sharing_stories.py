"""Stories of queues that share, told at random: a state machine of hypothesis over a whole dispatcher.

Jobs come, end, give back what they do not need any more, are suspended, held, deleted and given other priorities;
quotas, weights, limits, policies and cohorts are edited, of which some remember what was used before; workers are
cordoned, made smaller or larger, lost and found, with and without a fence; pods take their time to stop; and the
dispatcher ends at any of its writes. Each story ends quietly: then there has to be rest (P4), everybody has its own
quota (P8), knows why it waits (P14), and, as those that run end, is placed (P9).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from multimirror.api import Hold, Preempts
from multimirror.api.placement import cluster_of
from multimirror.batch import is_finished
from multimirror.kinds import JOB
from multimirror.kinds.kind import is_held
from multimirror.kinds.pod_sets import total
from tests.unit.scheduling.reference_quota import Place
from tests.unit.scheduling.sharing_room import could_fit, makes_room
from tests.unit.scheduling.sharing_world import LOST_SECONDS, RESOURCES, SharingWorld
from tests.unit.shell.world import TEAMS, WORKERS

Json = dict[str, Any]
T = TypeVar("T")
NAMES: Final = ("a", "b", "c")
COHORTS: Final = ("left", "left", "leaf", "right", "root")
"""In which queues are: as often as they are named here."""
CPU, GPU = RESOURCES
FACTS: Final = frozenset({"NeverFits", "Held", "Draining", "Cycle"})
"""Why a Job may wait for ever."""
INDEX: Final = st.integers(0, 15)
"""What there is depends on how far the dispatcher has come: which steps there are must not."""
AMPLE: Final = {worker: {CPU: 200, GPU: 200} for worker in WORKERS}
"""Then only quota is ever short."""
_REST_SECONDS: Final = 120.0
_LOOK_AGAIN_SECONDS: Final = 40.0
"""After so long, whoever could be placed was looked at once more."""
_ROUNDS: Final = 40

limits = st.sampled_from([None, None, None, None, None, 0, 2])
policies = st.sampled_from(
    [
        ["Reclaim"],
        ["Reclaim"],
        ["Reclaim", "Priority"],
        ["Reclaim", "FairShare", "Priority"],
        ["Reclaim", "FairShare", "Priority"],
        ["Reclaim", "FairShare", "Priority"],
        ["FairShare"],
        [],
    ]
)
sizes = st.fixed_dictionaries(
    {"cpus": st.sampled_from([1, 1, 2]), "gpus": st.sampled_from([0, 0, 0, 1]), "pods": st.sampled_from([1, 1, 2, 3])}
)
waves = st.permutations(NAMES).flatmap(
    lambda names: st.tuples(*(st.tuples(st.just(name), st.integers(2, 7), sizes, st.integers(0, 2)) for name in names))
)
"""One queue after the other sends so many Jobs of one size and priority."""


def one_of(found: Sequence[T], index: int) -> T | None:
    return found[index % len(found)] if found else None


@st.composite
def quotas(draw: st.DrawFn, *, shared: bool = True) -> Json:
    own = {CPU: draw(st.integers(1, 6)), GPU: draw(st.sampled_from([None, None, 1, 2, 4]))}
    parts: dict[str, dict[str, int | None]] = {"resources": own}
    if shared:
        parts["borrow"] = {name: draw(limits) for name in RESOURCES}
        parts["lend"] = {name: draw(limits) if own[name] is not None else None for name in RESOURCES}
    texts = {
        part: {name: str(amount) for name, amount in amounts.items() if amount is not None}
        for part, amounts in parts.items()
    }
    return {part: amounts for part, amounts in texts.items() if amounts}


@st.composite
def queues(draw: st.DrawFn) -> Json:
    return {
        "cohort": draw(st.sampled_from(COHORTS)),
        "quota": draw(quotas()),
        "weight": draw(st.sampled_from([0, 1, 1, 2])),
        "preempts": draw(policies),
        "minRuntime": draw(st.sampled_from(["0s", "0s", "60s"])),
        **draw(st.sampled_from([{}, {}, {"headWait": "60s"}])),
    }


@st.composite
def cohorts(draw: st.DrawFn, parent: str | None = None) -> Json:
    spec = {"quota": draw(quotas(shared=parent is not None)), "weight": draw(st.sampled_from([0, 1, 1, 2]))}
    return spec | ({"parent": parent} if parent is not None else {})


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Json]:
    """Of up to four levels of cohorts, or two trees."""
    top = draw(st.sampled_from([None, "top"]))
    found = {
        "leaf": draw(cohorts("left")),
        "left": draw(cohorts(draw(st.sampled_from(["root", "root", None])))),
        "right": draw(cohorts("root")),
        "root": draw(cohorts(top)),
    }
    found |= {"top": draw(cohorts())} if top is not None else {}
    remembers = draw(st.sampled_from([None, None, "left", "root"]))
    if remembers is not None:
        found[remembers]["halfLife"] = draw(st.sampled_from(["60s", "24h"]))
    return found


@st.composite
def capacities(draw: st.DrawFn) -> dict[str, dict[str, int]]:
    if draw(st.booleans()):
        return AMPLE
    return {worker: {CPU: draw(st.integers(4, 14)), GPU: draw(st.integers(0, 4))} for worker in WORKERS}


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, list[dict[str, int]]] | None:
    """Of both workers, where what is free is counted node by node."""
    if draw(st.integers(0, 2)):
        return None
    size = st.fixed_dictionaries({CPU: st.integers(2, 5), GPU: st.sampled_from([0, 0, 2])})
    return {worker: draw(st.lists(size, min_size=1, max_size=3)) for worker in WORKERS}


class Sharing(RuleBasedStateMachine):
    world: SharingWorld
    only: str = ""
    """The name of the one property that is looked at; else all are."""
    longest_unrest: ClassVar[float] = 3000.0
    """Seconds: who does not come to rest in them never will."""

    @initialize(
        specs=st.tuples(queues(), queues(), queues()),
        above=trees(),
        capacities=capacities(),
        nodes=nodes(),
        lost=st.sampled_from([{}, {"fence": {"timeout": "30s"}}]),
        waves=waves,
    )
    def begin(
        self,
        *,
        specs: tuple[Json, ...],
        above: dict[str, Json],
        capacities: dict[str, dict[str, int]],
        nodes: dict[str, list[dict[str, int]]] | None,
        lost: Json,
        waves: tuple[tuple[str, int, Json, int], ...],
    ) -> None:
        """One queue after the other sends Jobs: the first ones borrow, and others want theirs back."""
        self.lost = {"onWorkerLost": {"after": f"{LOST_SECONDS:.0f}s", "action": "Redispatch"}, **lost}
        made = {name: spec | self.lost for name, spec in zip(NAMES, specs, strict=True)}
        self.world = SharingWorld(made, above, capacities, nodes)
        self.world.pass_time(40 if lost else 1)  # a worker is recorded as connected before there are fences
        for queue, number, size, priority in waves:
            for _ in range(number):
                self.world.submit(queue, priority=priority, **size)
            self.time_passes(2)
            self.time_passes(7)

    # --- users

    @rule(
        queue=st.sampled_from(NAMES),
        team=st.sampled_from(TEAMS),
        size=sizes,
        priority=st.integers(0, 3),
        preemptible=st.integers(0, 5).map(bool),
        number=st.integers(1, 4),
    )
    def jobs_come(self, queue: str, team: str, size: Json, *, priority: int, preemptible: bool, number: int) -> None:
        for _ in range(number):
            self.world.submit(queue, team, priority, preemptible=preemptible, **size)
        self.time_passes(1)

    @rule(index=INDEX)
    def a_user_deletes_a_job(self, index: int) -> None:
        job = one_of(self.world.jobs(), index)
        if job is not None:
            self.world.user_deletes(job)

    @rule(index=INDEX, priority=st.integers(0, 3))
    def a_user_changes_a_priority(self, index: int, priority: int) -> None:
        job = one_of(self.unfinished(), index)
        if job is not None:
            self.world.user_sets_priority(job, priority)

    @rule(index=INDEX)
    def a_user_suspends_or_resumes_a_job(self, index: int) -> None:
        job = one_of([job for job in self.unfinished() if cluster_of(job) is not None], index)
        if job is not None:
            self.world.user_suspends(job, suspend=not job["spec"]["suspend"])

    @rule(index=INDEX, hold=st.booleans())
    def a_user_holds_a_job_or_lets_it_go(self, index: int, hold: bool) -> None:
        job = one_of([job for job in self.unfinished() if cluster_of(job) is None], index)
        if job is not None:
            self.world.user_holds(job, hold=hold)

    # --- workers and those who run them

    @rule(index=INDEX)
    def a_pod_has_done_its_work(self, index: int) -> None:
        worker, copy = one_of(self.world.running(), index) or ("", {})
        if worker:
            self.world.succeed(worker, copy)

    @rule(index=INDEX)
    def a_job_ends(self, index: int) -> None:
        worker, copy = one_of(self.world.running(), index) or ("", {})
        if worker:
            self.world.end_copy(worker, copy)

    @rule(seconds=st.sampled_from([0.0, 4.0, 40.0, 200.0]))
    def pods_take_longer_or_shorter_to_stop(self, seconds: float) -> None:
        self.world.drain_seconds = seconds

    @rule(worker=st.sampled_from(WORKERS), cordoned=st.booleans())
    def a_worker_is_cordoned_or_not(self, worker: str, cordoned: bool) -> None:
        self.world.cordon(worker, cordoned=cordoned)

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_is_lost_or_found(self, worker: str) -> None:
        self.world.set_link(worker, up=not self.world.network.links[worker].up)

    @rule(worker=st.sampled_from(WORKERS), cpus=st.integers(4, 14), gpus=st.integers(0, 4))
    def a_worker_has_another_size(self, worker: str, cpus: int, gpus: int) -> None:
        if not self.is_ample() and not self.world.nodes:
            self.world.set_capacity(worker, {CPU: cpus, GPU: gpus})

    @rule(worker=st.sampled_from(WORKERS), number=st.integers(0, 3))
    def pods_of_others_come_and_go(self, worker: str, number: int) -> None:
        self.world.foreign_pods(worker, number)

    # --- operators

    @rule(name=st.sampled_from(NAMES), spec=queues(), hold=st.sampled_from(["None", "None", "None", "Hold", "Drain"]))
    def a_queue_is_edited(self, name: str, spec: Json, hold: str) -> None:
        self.world.put_queue(name, {**spec, **self.lost, "hold": hold})

    @rule(name=st.sampled_from(NAMES), quota=quotas())
    def a_quota_is_edited(self, name: str, quota: Json) -> None:
        spec = self.world.spec_of(name)
        self.world.put_queue(name, {**spec, "quota": quota})

    @rule(name=st.sampled_from(["leaf", "left", "right"]), spec=cohorts("root"))
    def a_cohort_is_edited(self, name: str, spec: Json) -> None:
        """Or moved."""
        self.world.put_cohort(name, spec)

    # --- time

    @rule(seconds=st.sampled_from([0.01, 1, 6, 6, 20, 60, 200]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.check()

    @rule(writes=st.integers(1, 6))
    def the_dispatcher_will_end_at_a_write(self, writes: int) -> None:
        self.world.crash_after(writes)

    @rule()
    def the_dispatcher_is_started_anew(self) -> None:
        if self.world.clock() > self.world.started:  # else it has done nothing yet
            self.world.start_anew()

    # --- what must hold

    def check(self) -> None:
        found = [each for each in self.world.watch.violations if each.startswith(f"{self.only}:" if self.only else "P")]
        assert not found, "\n".join(found)

    def unfinished(self) -> list[Json]:
        return [job for job in self.world.jobs() if not is_finished(job.get("status") or {})]

    def waiting(self) -> list[Json]:
        return [job for job in self.unfinished() if cluster_of(job) is None and not is_held(JOB, job)]

    def is_ample(self) -> bool:
        return not self.world.nodes and all(each[CPU] >= 100 for each in self.world.capacities.values())

    def reason(self, job: Json) -> str:
        assert self.world.dispatcher is not None
        found = self.world.dispatcher.explain(job["metadata"]["namespace"], job["metadata"]["name"])
        return found.reason if found is not None else ""

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.begin_again()
            self.check()
            self.end_quietly()
        finally:
            self.world.begin_again()
            self.world.close()

    def end_quietly(self) -> None:
        world = self.world
        for worker in WORKERS:
            world.set_link(worker, up=True)
            world.cordon(worker, cordoned=False)
            world.foreign_pods(worker, 0)  # others' pods end, too: nobody is placed where they stay for ever
        for job in self.unfinished():
            if cluster_of(job) is not None and job["spec"]["suspend"]:
                world.user_suspends(job, suspend=False)  # else it might stay for ever
        world.crash_after(0)
        world.drain_seconds = 2.0
        world.pass_time(60)
        self.rest()
        self.everybody_has_its_own()
        for _ in range(_ROUNDS):
            for worker, copy in world.running():
                world.end_copy(worker, copy)
            world.pass_time(3)
            if not world.live_copies():
                self.rest(_LOOK_AGAIN_SECONDS)
            if not world.live_copies():
                break
        stuck = [job for job in self.waiting() if not self.waits_for_ever(job)]
        for job in stuck:
            world.watch.note("P9", f"{job['metadata']['name']} is never placed: {self.reason(job)}")
        self.check()

    def rest(self, seconds: float = _REST_SECONDS) -> None:
        """P4: with nothing from outside, nothing is decided any more after a while; and those who wait say why."""
        world, watch = self.world, self.world.watch
        watch.quiet, since, until = True, world.clock(), world.clock() + self.longest_unrest
        known = watch.decisions
        while world.clock() - since < seconds and world.clock() < until:
            world.pass_time(10)
            if watch.decisions != known:
                known, since = watch.decisions, world.clock()
        watch.quiet = False
        if world.clock() >= until:
            watch.note("P4", f"after {self.longest_unrest} s there is no rest")
        for job in self.waiting():
            reason = self.reason(job)
            if not reason:
                watch.note("P14", f"{job['metadata']['name']} waits, and nobody says why")
            if reason == "NeverFits" and could_fit(world, job):
                watch.note("P14", f"{job['metadata']['name']} is told that it never fits, and it could")
        self.check()

    def everybody_has_its_own(self) -> None:
        """P8: at rest nobody waits for what is its queue's own and may be taken back, if there is room for it on a
        worker when those are gone who have it there and may be asked for it."""
        there = self.world.watch.reference()
        for job in self.waiting():
            queue = job["metadata"]["labels"]["multimirror.dev/queue"]
            spec, asked = self.world.queues[queue], total(JOB.pod_sets(job))
            if Preempts.RECLAIM not in spec.preempts or spec.hold is not Hold.NONE:
                continue
            place = Place(True, queue)
            within = all(
                there.usage(place, name) + amount <= there.own(place, name)
                for name, amount in asked.items()
                if there.counts(queue, name)
            )
            if within and (self.is_ample() or makes_room(self.world, queue, asked)):
                reason = self.reason(job)
                self.world.watch.note("P8", f"{job['metadata']['name']} waits for its queue's own quota: {reason}")
        self.check()

    def waits_for_ever(self, job: Json) -> bool:
        reason, queue = self.reason(job), job["metadata"]["labels"]["multimirror.dev/queue"]
        if reason in FACTS:
            return True
        there, place = self.world.watch.reference(), Place(True, queue)
        asked = total(JOB.pod_sets(job))
        above_own = any(amount > there.own(place, name) for name, amount in asked.items() if there.counts(queue, name))
        return reason == "OwnQuotaOnly" and above_own
