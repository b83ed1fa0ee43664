"""A Job created on the management cluster runs on a worker and is seen where it was created: embedded and real, alike."""

import pytest

from tests.e2e.dispatching import Stage, condition

pytestmark = [pytest.mark.timeout(180)]


async def test_a_job_runs_on_a_worker_and_its_end_is_seen_where_it_was_created(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit()
        job = await stage.done()
        assert condition(job, "Complete")
        assert job["status"]["succeeded"] == 1
        await stage.nothing_left()
