"""The whole Job, of which the cache has a part: kept for a moment, else read; and what was decided on, or nothing."""

import copy
from typing import Any, cast

import pytest

from multimirror.api import ATTEMPT_ANNOTATION, PREEMPTED_ANNOTATION, RESERVED_ANNOTATION
from multimirror.kinds import JOB
from multimirror.kube.errors import NotFound
from multimirror.reconcile.wholes import WholeOriginals
from tests.unit.reconcile.builders import a_job

Json = dict[str, Any]


class Server:
    """What a GET answers."""

    def __init__(self, job: Json | None) -> None:
        self.job, self.asked = job, 0

    async def get(self, *_: object) -> Json:
        self.asked += 1
        if self.job is None:
            raise NotFound("it is gone", cluster="c")
        return copy.deepcopy(self.job)


def scene(**options: Any) -> tuple[WholeOriginals, Server, Json]:
    job = a_job().asking("1").on("w1").job
    server = Server(job)
    return WholeOriginals(cast("Any", server), **options), server, job


async def test_the_answer_to_the_assignment_saves_a_request() -> None:
    wholes, server, job = scene()
    wholes.keep(JOB, job)
    assert await wholes.take(JOB, JOB.trim(copy.deepcopy(job))) is job
    assert server.asked == 0
    assert await wholes.take(JOB, JOB.trim(copy.deepcopy(job))) == job
    assert server.asked == 1, "it is not kept for longer"


async def test_a_newer_version_is_read() -> None:
    wholes, server, job = scene()
    wholes.keep(JOB, copy.deepcopy(job))
    job["metadata"]["resourceVersion"] = "2"
    assert await wholes.take(JOB, JOB.trim(copy.deepcopy(job))) == job
    assert server.asked == 1


async def test_no_more_is_kept_than_there_is_room_for() -> None:
    wholes, server, job = scene(most_bytes=int(JOB.size_of(a_job().asking("1").on("w1").job) * 2.5))
    jobs = [copy.deepcopy(job) for _ in range(3)]
    for number, each in enumerate(jobs):
        each["metadata"]["uid"] = f"uid-{number}"
        wholes.keep(JOB, each)
    server.job = jobs[0]
    for each in jobs:
        assert await wholes.take(JOB, JOB.trim(copy.deepcopy(each))) == each
    assert server.asked == 1, "the oldest went"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda job: job["metadata"].update(uid="another"), id="another Job of that name"),
        pytest.param(lambda job: job["metadata"].update(deletionTimestamp="now"), id="it is being deleted"),
        pytest.param(lambda job: job["metadata"]["annotations"].update({ATTEMPT_ANNOTATION: "2"}), id="moved on"),
        pytest.param(lambda job: job["metadata"]["annotations"].pop(RESERVED_ANNOTATION), id="counted otherwise"),
        pytest.param(lambda job: job["spec"].update(suspend=True), id="its user suspended it"),
        pytest.param(
            lambda job: job["metadata"]["annotations"].update({PREEMPTED_ANNOTATION: "Drain"}), id="it is taken back"
        ),
        pytest.param(
            lambda job: job["spec"]["template"]["spec"]["containers"][0].update(resources={}), id="another template"
        ),
    ],
)
async def test_what_was_not_decided_on_is_nothing_to_make_a_copy_of(change: Any) -> None:
    wholes, server, job = scene()
    cached = JOB.trim(copy.deepcopy(job))
    change(job)
    job["metadata"]["resourceVersion"] = "2"
    assert await wholes.take(JOB, cached) is None
    server.job = None
    assert await wholes.take(JOB, cached) is None
