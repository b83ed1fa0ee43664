"""Any order of events, for the shell, with Jobs that have to make room: see test_any_order.py.

A machine of its own: the search for broken dispatchers there must not have more to choose from than it needs.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from multimirror.api import CLUSTER_ANNOTATION, PREEMPTED_ANNOTATION
from multimirror.api.placement import annotations
from multimirror.batch import is_finished
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption, preemption_patch
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import merged
from tests.unit.shell.test_any_order import INDEX, SETTINGS, Machine, one_of
from tests.unit.shell.world import QUEUES

Json = dict[str, Any]


class VictimsMachine(Machine):
    """The same, and some of the Jobs are taken back."""

    @initialize(queues=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3))
    def some_jobs_run(self, queues: list[str]) -> None:
        for queue in queues:
            self.world.submit(queue)
        self.world.settle()
        self.copies_go_on()
        self.world.settle()

    @rule(index=INDEX)
    def a_job_has_to_make_room(self, index: int) -> None:
        placed = [job for job in self.world.jobs() if CLUSTER_ANNOTATION in annotations(job)]
        job = one_of([job for job in placed if not is_finished(job.get("status") or {})], index)
        if job is not None and PREEMPTED_ANNOTATION not in annotations(job):
            mark = preemption_patch(JOB, job, Preemption.RECLAIM, now=self.world.clock())
            self.world.hub.put(JOBS, merged(job, mark))

    @rule()
    def copies_go_on(self) -> None:
        """They start, or notice that they are to stop; their pods take their time."""
        for worker, copy in self.world.live_copies():
            status = copy.get("status") or {}
            if not copy["spec"].get("suspend") and not status.get("active"):
                self.world.start_copy(worker, copy)
            elif copy["spec"].get("suspend"):
                self.world.stop_copy(worker, copy, pods=1 if status.get("active") else 0)

    def workers_catch_up(self) -> None:
        for worker, copy in self.world.live_copies():
            if copy["spec"].get("suspend"):
                self.world.stop_copy(worker, copy)
        self.world.settle(30)

    def check_job(self, job: Json) -> None:
        super().check_job(job)
        marked = PREEMPTED_ANNOTATION in annotations(job) and not is_finished(job.get("status") or {})
        assert not marked, f"I7: {job['metadata']['name']} is to make room, and does not"


VictimsMachine.TestCase.settings = settings(SETTINGS, stateful_step_count=40)
TestVictimsInAnyOrder = VictimsMachine.TestCase
del Machine  # its own tests are elsewhere
