"""A Job is taken back from its worker, on clusters with a Job controller and with pods that take their time."""

import time
from typing import Any

import pytest

from faults.record import MANAGEMENT
from multimirror.api import ATTEMPT_ANNOTATION, PREEMPTED_ANNOTATION
from multimirror.api.placement import annotations
from multimirror.kinds import JOB
from multimirror.kinds.preempted import Preemption, preemption_patch
from tests.e2e.dispatching import Stage, cluster_of, running

Json = dict[str, Any]


@pytest.mark.real_server
async def test_a_job_that_makes_room_has_its_worker_until_its_pods_are_gone_and_then_runs_again(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true", ignore_sigterm="2s")
        job = await stage.until(running)
        await stage.patch("job", preemption_patch(JOB, job, Preemption.RECLAIM, now=time.time(), by="somebody"))
        again = await stage.until(lambda each: annotations(each).get(ATTEMPT_ANNOTATION) == "2" and running(each))
        assert PREEMPTED_ANNOTATION not in annotations(again)
        await stage.event("Preempted", "no pod of it is left")
    seen = stage.history.record.seen
    (pod,) = [each.uid for each in seen if each.kind == "Pod" and each.type == "ADDED"][:1]
    told = next(each.time for each in seen if each.uid == pod and "deletionTimestamp" in each.object["metadata"])
    over = next(each.time for each in seen if each.uid == pod and each.time >= told and is_over(each))
    lost = next(
        each.time
        for each in seen
        if each.cluster == MANAGEMENT and each.time > told and each.kind == "Job" and cluster_of(each.object) is None
    )
    assert told + 1 < over <= lost, "the pods went on for two seconds after they had been told to stop"


def is_over(seen: Any) -> bool:
    return seen.type == "DELETED" or seen.status.get("phase") in ("Succeeded", "Failed")
