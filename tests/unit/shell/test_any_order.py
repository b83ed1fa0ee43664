"""Any order of events, for the shell: scheduler, lanes and sessions together, on virtual time, against API servers in
memory.

Users hold, relabel, restrict and delete their Jobs at any time; operators narrow and rename namespaces of workers;
nodes come and go, writes are slow, links are cut, the dispatcher is started anew; two queues compete for the workers.
What must never happen is noted at each write (world.py); when all is quiet, everything must have come to its place.

The same machine must find a dispatcher that is broken (bugs.py); short stories that show each are in test_stories.py.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, HOLD_ANNOTATION
from multimirror.batch import is_finished
from multimirror.kube.resources import JOBS
from tests.unit.shell.bugs import BUGS, Bug
from tests.unit.shell.world import QUEUES, TEAMS, WORKERS, World

Json = dict[str, Any]
T = TypeVar("T")
NAMESPACES_THERE = (
    None,
    [{"name": "t1"}],
    [{"name": "t2"}],
    [{"name": "t1"}, {"name": "t2", "workerNamespace": "elsewhere"}],
    [{"name": "t1", "workerNamespace": "elsewhere"}],
)


CHANGES: tuple[Json, ...] = (
    {"hold": True, "suspend": True},
    {"hold": False},
    {"queue": "a"},
    {"queue": "nowhere"},
    {"clusters": "w1"},
)
INDEX = st.integers(0, 7)
"""What is there depends on how far the dispatcher has come: which steps there are must not."""


def one_of(found: Sequence[T], index: int) -> T | None:
    return found[index % len(found)] if found else None


class Machine(RuleBasedStateMachine):
    """One dispatcher, two workers, two queues, two teams."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.settle()

    def teardown(self) -> None:
        self.world.close()

    # --- users

    @rule(queue=st.sampled_from(QUEUES), team=st.sampled_from(TEAMS), priority=st.integers(0, 2))
    def a_job_is_submitted(self, queue: str, team: str, priority: int) -> None:
        if len(self.world.jobs()) < 8:
            self.world.submit(queue, team, priority)

    @rule(index=INDEX, change=st.sampled_from(CHANGES))
    def a_user_changes_a_job(self, index: int, change: Json) -> None:
        job = one_of(self.world.jobs(), index)
        if job is None or is_finished(job.get("status") or {}):
            return
        if CLUSTER_ANNOTATION in (job["metadata"].get("annotations") or {}):
            self.world.edit(job, suspend=not job["spec"]["suspend"])
        else:
            self.world.edit(job, **change)

    @rule(index=INDEX)
    def a_user_deletes_a_job(self, index: int) -> None:
        job = one_of(self.world.jobs(), index)
        if job is not None:
            self.world.hub.remove(JOBS, job["metadata"]["name"], job["metadata"]["namespace"])

    # --- workers and those who run them

    @rule(index=INDEX)
    def a_copy_goes_on(self, index: int) -> None:
        worker, copy = one_of(self.world.live_copies(), index) or ("", {})
        if (copy.get("status") or {}).get("startTime"):
            self.world.end_copy(worker, copy)
        elif worker and not copy["spec"].get("suspend"):
            self.world.start_copy(worker, copy)

    @rule(index=INDEX)
    def somebody_deletes_a_copy(self, index: int) -> None:
        worker, copy = one_of(self.world.copies(), index) or ("", {})
        if worker:
            self.world.workers[worker].remove(JOBS, copy["metadata"]["name"], copy["metadata"]["namespace"])

    @rule(worker=st.sampled_from(WORKERS), namespaces=st.sampled_from(NAMESPACES_THERE))
    def an_operator_changes_namespaces(self, worker: str, namespaces: Any) -> None:
        self.world.set_worker(worker, namespaces=namespaces)

    @rule(worker=st.sampled_from(WORKERS), number=st.integers(0, 2))
    def nodes_come_and_go(self, worker: str, number: int) -> None:
        self.world.set_nodes(worker, number)

    @rule(name=st.sampled_from(["hub", *WORKERS]), seconds=st.sampled_from([0.0, 3.0]))
    def writes_take_long(self, name: str, seconds: float) -> None:
        self.world.network.links[name].write_seconds = seconds

    @rule(worker=st.sampled_from(WORKERS))
    def a_link_is_cut_or_mended(self, worker: str) -> None:
        link = self.world.network.links[worker]
        link.set_up(up=not link.up)

    # --- time

    @rule(seconds=st.sampled_from([0.001, 0.1, 2.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.settle(seconds)

    @rule()
    def the_dispatcher_is_started_anew(self) -> None:
        self.world.run(self.world.restart())

    @rule()
    def all_is_quiet_for_a_while(self) -> None:
        for link in self.world.network.links.values():
            link.set_up(up=True)
            link.write_seconds = 0.0
        self.world.settle(90)  # refusals are forgotten, and back-offs are over
        self.workers_catch_up()
        self.check_quiet()

    def workers_catch_up(self) -> None:
        """For other machines, in which that matters."""

    # --- what must hold

    @invariant()
    def nothing_went_wrong(self) -> None:
        assert self.world.violations == []

    def check_quiet(self) -> None:
        jobs = {job["metadata"]["uid"]: job for job in self.world.jobs()}
        for worker, copy in self.world.copies():
            uid = copy["metadata"]["labels"]["multimirror.dev/origin-uid"]
            assert uid in jobs, f"I6: {copy['metadata']['name']} stays on {worker}"
        for job in jobs.values():
            self.check_job(job)

    def check_job(self, job: Json) -> None:
        name, annotations = job["metadata"]["name"], job["metadata"].get("annotations") or {}
        copies = self.world.copies(job["metadata"]["uid"])
        if is_finished(job.get("status") or {}):
            assert copies == [], f"I2: {name} has finished, and keeps a copy"
        elif CLUSTER_ANNOTATION in annotations:
            assert len(copies) <= 1, f"I1: {name} has more than one copy"
            assert copies or job["spec"]["suspend"], f"I7: {name} is assigned, has no copy, and nothing is done"
            for _, copy in copies:
                status = copy.get("status") or {}
                assert copy["metadata"]["labels"]["multimirror.dev/attempt"] == annotations[ATTEMPT_ANNOTATION]
                assert (job.get("status") or {}).get("active", 0) == status.get("active", 0), f"I4: {name}"
        elif HOLD_ANNOTATION not in annotations or not job["spec"]["suspend"]:
            assert copies == [], f"I1: {name} waits, and has a copy"
            assert self.world.dispatcher is not None
            why = self.world.dispatcher.explain(job["metadata"]["namespace"], name)
            assert why is not None, f"I7: {name} waits, and nobody says why"
            assert why.reason, f"I7: {name} could go somewhere, and does not"


PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # to explain, it would trace every line
SETTINGS = settings(max_examples=15, stateful_step_count=30, deadline=None, phases=PHASES)
Machine.TestCase.settings = SETTINGS
TestAnyOrder = Machine.TestCase


@pytest.mark.search
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_search_finds_a_dispatcher_that_is_broken(bug: Bug) -> None:
    search = settings(SETTINGS, max_examples=2000, database=None, phases=[Phase.generate])
    with bug(), pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=search)
