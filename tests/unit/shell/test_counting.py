"""What is counted, in the dispatcher as a whole: Jobs that are resized, suspended, given another template and ended in
any order, in a queue with a quota. At every write to a worker, and after every step, the copies have no more than the
quota, and no more than is counted for them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from multimirror.api import CLUSTER_ANNOTATION, MIRROR_QUEUES, ORIGIN_UID_LABEL, QUEUE_LABEL, WAITS_FOR_ANNOTATION
from multimirror.batch import is_finished
from multimirror.batch.indexes import IndexSet
from multimirror.kinds import JOB
from multimirror.kinds.job.sizes import pods_left, pods_of, pods_there
from multimirror.kinds.pod_sets import pod_requests
from multimirror.kinds.reserved import reserved_of
from multimirror.kube.resources import EVENTS, JOBS
from tests.unit.shell.fake_api import Request
from tests.unit.shell.world import World

Json = dict[str, Any]
QUOTA = 4
CPU = 1_000_000_000


class CountedWorld(World):
    """Two workers with nine cpus each; queue a has a quota of four. Worker w2 is not used."""

    def __init__(self) -> None:
        super().__init__()

        def limit(queue: Json) -> None:
            queue["metadata"]["generation"] += 1
            queue["spec"]["quota"] = {"resources": {"cpu": str(QUOTA)}}

        self.hub.change(MIRROR_QUEUES, "a", "", limit)
        self.set_nodes("w1", 9)
        self.set_nodes("w2", 9)
        self.settle()

    def resize(self, name: str, parallelism: int, completions: int | None = None) -> None:
        def change(job: Json) -> None:
            job["spec"]["parallelism"] = parallelism
            if completions is not None:
                job["spec"]["completions"] = completions

        self.change(name, change)

    def change(self, name: str, change: Any) -> None:
        job = self.job(name)
        self.hub.change(JOBS, name, job["metadata"]["namespace"], change)

    def job(self, name: str) -> Json:
        (job,) = [job for job in self.jobs() if job["metadata"]["name"] == name]
        return job

    def large(
        self, pods: int = 1, cpus: str = "1", queue: str = "a", team: str = "t1", completions: int = 100, **spec: Any
    ) -> str:
        """Submitted, with many completions."""
        name = self.submit(queue, team)

        def change(job: Json) -> None:
            job["spec"] |= {"parallelism": pods, "completions": completions, **spec}
            _main(job)["resources"] = {"requests": {"cpu": cpus}}

        self.change(name, change)
        return name

    def catch_up(self) -> None:
        """The workers' Job controllers do what is asked of them."""
        for worker, copy in self.live_copies():
            spec, status = copy["spec"], copy.get("status") or {}
            done = status.get("succeeded", 0)  # what has succeeded stays so
            if spec.get("suspend"):
                suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": self.now()}
                pods = {"active": 0, "ready": 0, "terminating": 0, "succeeded": done}
                self._set_status(worker, copy, {"conditions": [suspended], **pods})
            else:
                start = status.get("startTime") or self.now()
                pods = {"active": pods_left(spec, status), "ready": 0, "terminating": 0, "succeeded": done}
                self._set_status(worker, copy, {"startTime": start, **pods})

    def succeed(self, worker: str, copy: Json, succeeded: int) -> None:
        """So many of a copy's pods have succeeded, in all; others run for as long as there is something to do."""
        spec, start = copy["spec"], (copy.get("status") or {}).get("startTime") or self.now()
        status = {"startTime": start, "ready": 0, "terminating": 0, "succeeded": succeeded}
        if spec.get("completionMode") == "Indexed":
            status["completedIndexes"] = str(IndexSet.of(range(succeeded)))
        self._set_status(worker, copy, status | {"active": pods_left(spec, status)})

    def held_by_copies(self) -> int:
        """All that the copies of queue a may have now, in billionths of a cpu."""
        originals = {job["metadata"]["uid"]: job for job in self.jobs()}
        total = 0
        for _, copy in self.live_copies():
            original = originals.get(copy["metadata"]["labels"][ORIGIN_UID_LABEL])
            if original is None or original["metadata"]["labels"][QUEUE_LABEL] != "a":
                continue
            may = 0 if copy["spec"].get("suspend") else pods_left(copy["spec"], copy.get("status") or {})
            each = pod_requests(copy["spec"]["template"]["spec"]).get("cpu", 0)
            total += max(may, pods_there(copy)) * each
        return total

    def counted(self) -> int:
        assert self.dispatcher is not None
        return self.dispatcher._scheduler._assignments.usage.sums.queue("a").of("cpu")

    def check(self) -> None:
        held, counted = self.held_by_copies(), self.counted()
        if held > QUOTA * CPU:
            self.violations.append(f"copies have {held / CPU} cpus, and the quota is {QUOTA}")
        if held > counted:
            self.violations.append(f"copies have {held / CPU} cpus, and {counted / CPU} are counted")
        if counted > QUOTA * CPU:
            self.violations.append(f"{counted / CPU} cpus are counted, and the quota is {QUOTA}")

    def told(self, reason: str) -> list[str]:
        """What was said for this reason for waiting."""
        return [
            event["message"]
            for event in self.hub.all(EVENTS)
            if (event["metadata"].get("annotations") or {}).get(WAITS_FOR_ANNOTATION) == reason
        ]

    def _on_worker_write(self, request: Request, before: Json | None, after: Json | None) -> None:
        super()._on_worker_write(request, before, after)
        if request.collection == JOBS.path() and self.dispatcher is not None:
            self.check()


def _main(job: Json) -> Json:
    container: Json = job["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.fixture
def world() -> Iterator[CountedWorld]:
    world = CountedWorld()
    yield world
    world.close()
    assert world.violations == []


def parallelism(world: CountedWorld) -> list[int]:
    return [copy["spec"]["parallelism"] for _, copy in world.live_copies()]


def test_growth_within_the_quota_reaches_the_copy(world: CountedWorld) -> None:
    name = world.large(pods=1)
    world.settle()
    world.resize(name, 4)
    world.settle()
    assert parallelism(world) == [4]
    assert world.counted() == 4 * CPU


def test_growth_beyond_the_quota_waits_in_words_and_wakes_up_when_there_is_room(world: CountedWorld) -> None:
    small = world.large(pods=3)
    other = world.large(pods=1)
    world.settle()
    assert sorted(parallelism(world)) == [1, 3]
    world.resize(other, 3)
    world.settle(5)
    assert sorted(parallelism(world)) == [1, 3]
    (words,) = world.told("GrowthWaits")
    assert "room for 1 pod, and waits to grow to 3: queue a has 0 cpu left of its quota, it asks for 2" in words
    world.hub.remove(JOBS, small, "t1")
    world.settle(5)
    assert parallelism(world) == [3]


def test_growth_beyond_the_whole_quota_says_so(world: CountedWorld) -> None:
    name = world.large(pods=0)
    world.settle()
    assert parallelism(world) == [0]
    world.resize(name, 1000)
    world.settle(5)
    assert parallelism(world) == [0]
    (words,) = world.told("GrowthNeverFits")
    assert "more than the whole quota of queue a (4)" in words
    assert world.counted() == 0
    world.resize(name, 2)
    world.settle(5)
    assert parallelism(world) == [2], "who asks for less gets it"


def test_who_shrinks_gives_back_what_its_copy_has_given_back(world: CountedWorld) -> None:
    name = world.large(pods=4)
    world.settle()
    world.catch_up()
    world.settle()
    world.resize(name, 1)
    world.settle()
    assert parallelism(world) == [1]
    assert world.counted() == 4 * CPU, "its pods are there still"
    world.catch_up()
    world.settle()
    assert world.counted() == 1 * CPU


def test_a_cheaper_template_while_suspended_is_counted_anew_as_another_attempt(world: CountedWorld) -> None:
    """Create 3900m, get placed, suspend, set 1m, resume."""
    name = world.large(cpus="3900m")
    world.settle()
    world.catch_up()
    world.settle()
    world.change(name, lambda job: job["spec"].update(suspend=True))
    world.settle()
    world.catch_up()
    world.change(name, lambda job: _main(job)["resources"]["requests"].update(cpu="1m"))
    world.settle()
    assert world.counted() == 3_900_000_000
    world.change(name, lambda job: job["spec"].update(suspend=False))
    world.settle(5)
    world.catch_up()
    world.settle(5)
    ((_, copy),) = world.live_copies()
    assert copy["metadata"]["labels"]["multimirror.dev/attempt"] == "2"
    assert _main(copy)["resources"]["requests"]["cpu"] == "1m"
    assert world.counted() == 1_000_000


def test_a_relabelled_job_counts_where_it_was_admitted(world: CountedWorld) -> None:
    name = world.large(pods=4)
    world.settle()
    world.change(name, lambda job: job["metadata"]["labels"].update({QUEUE_LABEL: "z"}))
    world.settle()
    assert world.counted() == 4 * CPU


def test_after_a_restart_the_same_is_counted(world: CountedWorld) -> None:
    name = world.large(pods=1)
    world.settle()
    world.resize(name, 9)
    world.settle()
    world.run(world.restart())
    world.settle(5)
    assert world.counted() == 1 * CPU
    assert parallelism(world) == [1]


def test_a_job_that_is_too_large_is_not_placed_and_holds_nobody_up(world: CountedWorld) -> None:
    fat = world.submit("a")
    world.change(fat, lambda job: job["metadata"].update(annotations={"fat": "x" * 300_000}))
    world.settle(3)  # the first look may have come before it was made fat
    big = world.submit("a")
    world.change(big, lambda job: job["spec"]["template"]["metadata"].update(annotations={"fat": "x" * 300_000}))
    world.settle(3)
    thin = world.large()
    world.settle()
    assert CLUSTER_ANNOTATION in world.job(thin)["metadata"]["annotations"]


class Machine(RuleBasedStateMachine):
    """Everything that tenants do with sizes and templates."""

    def __init__(self) -> None:
        super().__init__()
        self.world = CountedWorld()
        for _ in range(2):
            self.world.large()
        self.world.settle()
        self.world.catch_up()
        self.world.settle()

    def teardown(self) -> None:
        self.world.close()

    def one(self, index: int) -> Json | None:
        jobs = [job for job in self.world.jobs() if not is_finished(job.get("status") or {})]
        return jobs[index % len(jobs)] if jobs else None

    @rule(pods=st.integers(0, 3), cpus=st.sampled_from(["1m", "1", "1900m"]))
    def submit(self, pods: int, cpus: str) -> None:
        if len(self.world.jobs()) < 5:
            self.world.large(pods, cpus)

    @rule(index=st.integers(0, 4), pods=st.sampled_from([0, 1, 2, 4, 1000]))
    def resize(self, index: int, pods: int) -> None:
        job = self.one(index)
        if job is not None:
            self.world.resize(job["metadata"]["name"], pods)

    @rule(index=st.integers(0, 4))
    def suspend_or_resume(self, index: int) -> None:
        job = self.one(index)
        if job is not None and CLUSTER_ANNOTATION in (job["metadata"].get("annotations") or {}):
            self.world.change(
                job["metadata"]["name"], lambda job: job["spec"].update(suspend=not job["spec"]["suspend"])
            )

    @rule(index=st.integers(0, 4), cpus=st.sampled_from(["1m", "2"]))
    def change_the_template_while_suspended(self, index: int, cpus: str) -> None:
        job = self.one(index)
        if job is not None and job["spec"]["suspend"]:
            self.world.change(
                job["metadata"]["name"], lambda job: _main(job).update(resources={"requests": {"cpu": cpus}})
            )

    @rule(index=st.integers(0, 4), left=st.integers(0, 5))
    def come_near_the_end(self, index: int, left: int) -> None:
        copies = self.world.live_copies()
        if copies:
            worker, copy = copies[index % len(copies)]
            status = copy.get("status") or {}
            done = max(status.get("succeeded", 0), copy["spec"]["completions"] - left)
            if status.get("startTime") and not copy["spec"].get("suspend"):
                self.world.succeed(worker, copy, done)

    @rule(index=st.integers(0, 4))
    def finish(self, index: int) -> None:
        copies = self.world.live_copies()
        if copies:
            worker, copy = copies[index % len(copies)]
            if (copy.get("status") or {}).get("startTime") and not copy["spec"].get("suspend"):
                self.world.end_copy(worker, copy)

    @rule(index=st.integers(0, 4))
    def delete(self, index: int) -> None:
        job = self.one(index)
        if job is not None:
            self.world.hub.remove(JOBS, job["metadata"]["name"], job["metadata"]["namespace"])

    @rule()
    def workers_catch_up(self) -> None:
        self.world.catch_up()
        self.world.settle(0.05)

    @rule(index=st.integers(0, 4), pods=st.sampled_from([1, 2, 3, 1000]))
    def resize_and_wait(self, index: int, pods: int) -> None:
        self.resize(index, pods)
        self.world.settle(3)

    @rule(seconds=st.sampled_from([0.001, 0.05, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.settle(seconds)

    @rule()
    def the_dispatcher_starts_anew(self) -> None:
        self.world.run(self.world.restart())

    @rule()
    def all_is_quiet(self) -> None:
        """Then a copy has what its Job asks for, or its Job waits to grow."""
        for _ in range(4):
            self.world.settle(3)
            self.world.catch_up()
        self.world.settle(3)
        originals = {job["metadata"]["uid"]: job for job in self.world.jobs()}
        for _, copy in self.world.live_copies():
            job = originals[copy["metadata"]["labels"][ORIGIN_UID_LABEL]]
            reserved = reserved_of(job)
            assert reserved is not None
            asked, has = JOB.pod_counts(job)["main"], pods_of(copy["spec"])
            assert has == min(asked, reserved.granted["main"])
            assert asked >= reserved.granted["main"], "what is not asked for any more is given back"
            counted, needed = reserved.counts["main"], JOB.pods_needed(job, copy)["main"]
            assert counted <= max(needed, min(asked, 1)), "and so is what has nothing left to do"

    @invariant()
    def nothing_is_beyond_the_quota(self) -> None:
        self.world.check()
        assert self.world.violations == []


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, phases=(Phase.explicit, Phase.generate, Phase.shrink)
)
