"""What others do on the management cluster: a Job controller that does not know managedBy, policies that refuse us."""

from typing import Any

import pytest

from multimirror.api import ATTEMPT_ANNOTATION
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import Stage, cluster_of, condition, running
from tests.e2e.worker_webhooks import REFUSAL, refusing

pytestmark = pytest.mark.real_server
Json = dict[str, Any]


async def test_a_job_that_the_clusters_own_controller_runs_too_is_suspended_and_leaves_its_worker(stage: Stage) -> None:
    """An API server that keeps spec.managedBy, and an older kube-controller-manager: half way through an upgrade."""
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        connection = Connection.from_kubeconfig(stage.fleet.management.kubeconfig)
        async with Client(connection, user_agent="kube-controller-manager/v1.31.4") as older:
            await older.patch(JOBS, "job", {"status": {"ready": 0}}, stage.namespace, subresource="status")
        await stage.event("ManagedByIgnored", "another controller runs this Job")
        await stage.event("ManagedByIgnored", "it is not placed")
        job = await stage.until(lambda job: cluster_of(job) is None and job["spec"]["suspend"])
        await stage.nothing_left()
        assert job["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"
    async with stage.dispatcher():  # another one knows it too
        await stage.submit("other")
        await stage.done("other")
        assert cluster_of(await stage.job()) is None


async def test_a_status_that_a_person_writes_by_hand_is_put_right_and_stops_nothing(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.management.patch(JOBS, "job", {"status": {"ready": 0}}, stage.namespace, subresource="status")
        job = await stage.until(running)
        assert cluster_of(job) is not None


async def test_an_assignment_that_a_policy_refuses_is_told_and_made_once_it_may_be(stage: Stage) -> None:
    await stage.submit()
    async with stage.dispatcher():
        async with refusing(stage, "job", "jobs"):
            await stage.submit("second")
            await stage.event("AssignmentRefused", REFUSAL["status"]["message"], "second")
            assert cluster_of(await stage.job("second")) is None
        assert condition(await stage.done("second"), "Complete")


async def test_a_status_that_a_policy_refuses_is_told_and_written_once_it_may_be(stage: Stage) -> None:
    await stage.submit()
    async with stage.dispatcher():
        await stage.done()
        async with refusing(stage, "job", "jobs/status"):
            await stage.submit("second")
            await stage.event("StatusRefused", REFUSAL["status"]["message"], "second")
            assert "startTime" not in ((await stage.job("second")).get("status") or {})
        assert condition(await stage.done("second"), "Complete")
