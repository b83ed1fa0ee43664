"""Any order of events, for the shell, with Jobs that have to make room: see test_any_order.py.

A machine of its own: the search for broken dispatchers there must not have more to choose from than it needs.
"""

from typing import Any

from hypothesis import settings
from hypothesis.stateful import rule

from multimirror.api import CLUSTER_ANNOTATION, PREEMPTED_ANNOTATION
from multimirror.api.placement import annotations
from multimirror.batch import is_finished
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption, preemption_patch
from multimirror.kube.resources import JOBS
from tests.unit.shell.fake_api import merged
from tests.unit.shell.test_any_order import INDEX, SETTINGS, Machine, one_of

Json = dict[str, Any]


class VictimsMachine(Machine):
    """The same, and some of the Jobs are taken back."""

    @rule(index=INDEX)
    def a_job_has_to_make_room(self, index: int) -> None:
        job = one_of(self.world.jobs(), index)
        if job is None or is_finished(job.get("status") or {}):
            return
        if CLUSTER_ANNOTATION in annotations(job) and PREEMPTED_ANNOTATION not in annotations(job):
            mark = preemption_patch(JOB, job, Preemption.RECLAIM, now=self.world.clock())
            self.world.hub.put(JOBS, merged(job, mark))

    @rule(index=INDEX)
    def a_copy_stops(self, index: int) -> None:
        worker, copy = one_of(self.world.live_copies(), index) or ("", {})
        if worker and copy["spec"].get("suspend"):
            self.world.stop_copy(worker, copy)

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
