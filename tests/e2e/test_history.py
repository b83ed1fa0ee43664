"""The checks after each test can fail: what others do to a stage on purpose is told as a broken promise."""

from typing import Any

import pytest

from clusters.background import BackgroundFleet
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import Stage, a_job, a_stage, running

Json = dict[str, Any]
SOON = 10.0
"""Such a stage never comes to rest; what is wrong with it is on the record long before."""


async def again(client: Client, job: Json, namespace: str) -> None:
    """The same object once more, as if it were new."""
    metadata = {key: job["metadata"][key] for key in ("name", "labels")}
    spec = {key: value for key, value in job["spec"].items() if key != "selector"}
    template = {"metadata": {"annotations": job["spec"]["template"]["metadata"].get("annotations", {})}}
    spec["template"] = {**spec["template"], **template}
    await client.create(JOBS, {"metadata": metadata, "spec": spec}, namespace)


async def test_a_second_copy_that_lives_beside_the_first_is_told(kind: str, dispatching_fleet: BackgroundFleet) -> None:
    async with a_stage(kind, dispatching_fleet) as stage:
        async with stage.dispatcher():
            await stage.submit(never_finish="true")
            worker, copy = await stage.copy(running)
        await again(stage.workers[other(stage, worker)], copy, stage.namespace)
        with pytest.raises(AssertionError, match=r"I1: two copies of .*/job live at once"):
            await stage.check(within=SOON)


async def test_a_copy_that_is_made_after_the_end_is_told(kind: str, dispatching_fleet: BackgroundFleet) -> None:
    async with a_stage(kind, dispatching_fleet) as stage:
        async with stage.dispatcher():
            await stage.submit(never_finish="true")
            worker, copy = await stage.copy(running)
            await stage.finish()
            await stage.done()
            await stage.nothing_left()
        await again(stage.workers[worker], copy, stage.namespace)
        with pytest.raises(AssertionError, match=r"I2: .*/job is finished, and a copy of it is made"):
            await stage.check(within=SOON)


async def test_a_job_of_somebody_else_that_we_change_is_told(kind: str, dispatching_fleet: BackgroundFleet) -> None:
    """Who comes through the dispatcher's link is the dispatcher."""
    async with a_stage(kind, dispatching_fleet) as stage:
        worker, client = next(iter(stage.workers.items()))
        theirs = a_job("theirs", queue="unused")
        del theirs["spec"]["managedBy"], theirs["metadata"]["labels"]
        await client.create(JOBS, theirs, stage.namespace)
        async with Client(Connection.from_kubeconfig(stage.links[worker].kubeconfig)) as ours:
            await ours.patch(JOBS, "theirs", {"spec": {"parallelism": 2}}, stage.namespace)
        with pytest.raises(AssertionError, match=r"I5: .*/theirs is not ours, and we wrote to it"):
            await stage.check()


def other(stage: Stage, worker: str) -> str:
    return next(name for name in stage.workers if name != worker)
