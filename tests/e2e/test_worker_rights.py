"""A worker's account whose rights come and go, on real API servers: embedded ones allow everything to everybody."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from clusters.local import LocalCluster
from multimirror.api import WORKER_CLUSTERS
from multimirror.cli.apply import apply, apply_all, remove_all
from multimirror.cli.manifests import manifest
from multimirror.kube import Client
from tests.e2e.dispatching import SYSTEM, Stage, cluster_of, condition, running, until
from tests.e2e.installation.processes import token

pytestmark = [pytest.mark.parametrize("kind", ["local"], indirect=True)]
Json = dict[str, Any]
BINDING = manifest("worker/all-namespaces.yaml")
ROLE = "multimirror-worker-jobs"


@dataclass(frozen=True)
class Guest:
    """The first worker, reached with the account that deploy/worker makes; it has no right to Jobs yet."""

    stage: Stage
    name: str
    admin: Client

    async def grant(self) -> None:
        await apply_all(self.admin, BINDING)

    async def revoke(self) -> None:
        await remove_all(self.admin, BINDING)


@pytest_asyncio.fixture
async def guest(stage: Stage) -> AsyncIterator[Guest]:
    name = next(iter(stage.workers))
    admin, cluster = stage.workers[name], stage.fleet.workers[name.rpartition("-")[0]]
    assert isinstance(cluster, LocalCluster)
    documents = manifest("worker/worker.yaml")
    await apply_all(admin, documents)
    stage.links[name].retarget(cluster.kubeconfig_with_token(await token(admin, "multimirror", SYSTEM)))
    await stage.set_queue(workers={"names": [name]})
    yield Guest(stage, name, admin)
    stage.links[name].retarget(cluster.kubeconfig)
    await remove_all(admin, BINDING)
    await remove_all(admin, [each for each in documents if each["kind"] != "Namespace"])


async def test_a_worker_without_rights_says_which_and_takes_jobs_as_soon_as_it_has_them(guest: Guest) -> None:
    stage = guest.stage
    async with stage.dispatcher():
        told = await stage.cluster_condition(guest.name, "Ready", "False", "PermissionDenied")
        assert "create jobs.batch in all namespaces" in told["message"]
        assert (await stage.cluster_condition(guest.name, "Connected", "True"))["reason"] == "Connected"
        await stage.submit()
        await stage.event("Waiting", "the account may not")
        await guest.grant()
        await stage.cluster_condition(guest.name, "Ready", "True")
        assert condition(await stage.done(), "Complete")


def lacks_only_delete(cluster: Json) -> bool:
    words = "the account may not delete jobs.batch in all namespaces;"
    return any(c["type"] == "Ready" and c["message"].startswith(words) for c in cluster["status"]["conditions"])


async def test_rights_that_come_one_by_one_are_told_as_they_are(guest: Guest) -> None:
    stage, (role,) = guest.stage, [each for each in manifest("worker/worker.yaml") if each["metadata"]["name"] == ROLE]
    verbs = role["rules"][0]["verbs"]
    await apply(guest.admin, {**role, "rules": [{**role["rules"][0], "verbs": [v for v in verbs if v != "delete"]}]})
    async with stage.dispatcher():
        await stage.cluster_condition(guest.name, "Ready", "False", "PermissionDenied")
        await guest.grant()
        await until(stage.management, WORKER_CLUSTERS, None, guest.name, lacks_only_delete)
        await apply(guest.admin, role)
        await stage.cluster_condition(guest.name, "Ready", "True")


async def test_a_worker_whose_copies_can_no_longer_be_followed_is_noticed_and_its_jobs_wait_for_it(
    guest: Guest,
) -> None:
    stage = guest.stage
    await guest.grant()
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        job = await stage.until(running)
        await guest.revoke()
        stage.cut(guest.name)  # an API server lets a watch that is open go on
        stage.mend(guest.name)
        await stage.cluster_condition(guest.name, "Ready", "False", "PermissionDenied")
        await guest.grant()
        await stage.cluster_condition(guest.name, "Ready", "True")
        assert cluster_of(await stage.until(running)) == cluster_of(job)
