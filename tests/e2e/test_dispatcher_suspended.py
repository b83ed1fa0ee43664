"""A Job that waits, or is held, as kubectl shows it: what Kubernetes shows of a suspended one. And what that costs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.local.binaries import BinariesMissingError, find_kubectl
from faults.record import MANAGEMENT
from multimirror.api import HOLD_ANNOTATION
from multimirror.kube.resources import JOBS
from tests.e2e.dispatching import Stage, a_job, condition, running

Json = dict[str, Any]
Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
def kubectl(stage: Stage, tmp_path: Path) -> Kubectl:
    """As the Job's user, on the management cluster."""
    try:
        program = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(stage.kubeconfig_of(MANAGEMENT)))

    async def run(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(program), f"--kubeconfig={kubeconfig}", f"--namespace={stage.namespace}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, (arguments, err.decode())
        return out.decode()

    return run


async def shown(kubectl: Kubectl, name: str) -> list[str]:
    """STATUS and COMPLETIONS; and whether there is a DURATION."""
    _, line = (await kubectl("get", "job", name)).splitlines()
    columns = line.split()
    return [*columns[1:3], *(["started"] if len(columns) == 5 else [])]


def told(job: Json) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each.get("reason", "")) for each in job["status"]["conditions"]]


async def close(stage: Stage, *, closed: bool) -> None:
    for worker in stage.workers:
        await stage.set_worker(worker, cordoned=closed)


def writes(stage: Stage, name: str) -> list[str]:
    """What the dispatcher has written to a Job on the management cluster, in order."""
    found = [each.call for each in stage.history.record.writes("dispatcher") if each.cluster == MANAGEMENT]
    return [f"{call.verb} {call.resource}" for call in found if call.name == name]


@pytest.mark.real_server
async def test_a_job_that_waits_is_suspended_to_kubectl_then_running_then_complete(
    stage: Stage, kubectl: Kubectl
) -> None:
    await close(stage, closed=True)
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await kubectl("wait", "--for=condition=Suspended", "job/job", "--timeout=60s")
        assert await shown(kubectl, "job") == ["Suspended", "0/1"]
        waits = await stage.job()
        assert told(waits) == [("Suspended", "True", "JobSuspended")]
        assert "startTime" not in waits["status"]
        assert waits["status"]["conditions"][0]["message"].startswith("Job suspended: it waits for a worker")
        await close(stage, closed=False)
        await kubectl("wait", "--for=condition=Suspended=False", "job/job", "--timeout=60s")
        await stage.until(running)
        assert await shown(kubectl, "job") == ["Running", "0/1", "started"]
        await stage.finish()
        await kubectl("wait", "--for=condition=Complete", "job/job", "--timeout=60s")
        assert await shown(kubectl, "job") == ["Complete", "1/1", "started"]
        conditions = [each[:2] for each in told(await stage.job())]
        assert conditions == [("Suspended", "False"), ("SuccessCriteriaMet", "True"), ("Complete", "True")]


@pytest.mark.real_server
async def test_a_held_job_shows_what_plain_kubernetes_shows_of_a_suspended_one(stage: Stage, kubectl: Kubectl) -> None:
    def hold(job: Json) -> None:
        job["metadata"]["annotations"] = {HOLD_ANNOTATION: "true"}

    plain = a_job("plain", queue="", never_finish="true")
    del plain["spec"]["managedBy"], plain["metadata"]["labels"]
    async with stage.dispatcher():
        await stage.submit("held", change=hold, never_finish="true")
        await stage.management.create(JOBS, plain, stage.namespace)
        seen = {}
        for name in ("held", "plain"):
            await kubectl("wait", "--for=condition=Suspended", f"job/{name}", "--timeout=60s")
            seen[name] = await stage.job(name)
        assert await shown(kubectl, "held") == await shown(kubectl, "plain") == ["Suspended", "0/1"]
        assert told(seen["held"]) == told(seen["plain"])
        message = seen["held"]["status"]["conditions"][0].pop("message")
        assert message.startswith(f"{seen['plain']['status']['conditions'][0].pop('message')}: it is held")
        assert {key for key, value in seen["held"]["status"].items() if value} == {"conditions"}
        for name in ("held", "plain"):
            await kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}')
            await kubectl("wait", "--for=condition=Suspended=False", f"job/{name}", "--timeout=60s")
            seen[name] = await stage.until(lambda job: bool(job["status"].get("startTime")), name)
        assert told(seen["held"]) == told(seen["plain"]) == [("Suspended", "False", "JobResumed")]
        resumed = seen["held"]["status"]
        assert resumed["conditions"][0]["lastTransitionTime"] == resumed["startTime"]
        await stage.management.delete(JOBS, "plain", stage.namespace)


@pytest.mark.real_server
async def test_to_say_that_it_waits_is_one_write_of_a_job_that_does_and_none_of_any_other(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit("at-once")
        await stage.done("at-once")
        await close(stage, closed=True)
        await stage.submit("waits")
        await stage.until(lambda job: condition(job, "Suspended"), "waits")
    async with stage.dispatcher() as dispatcher:  # another one reads it off the Job, and writes nothing
        await dispatcher.idle()
        await stage.submit("later")
        await stage.until(lambda job: condition(job, "Suspended"), "later")
        assert writes(stage, "waits") == ["patch jobs/status"]
        await close(stage, closed=False)
        await stage.done("waits")
    assert not any(each["type"] == "Suspended" for each in (await stage.job("at-once"))["status"]["conditions"])
    assert writes(stage, "at-once")[0] == "patch jobs"
    assert writes(stage, "waits")[:2] == ["patch jobs/status", "patch jobs"]
    after = len(writes(stage, "waits")) - 2
    assert after <= len(await seen_changes(stage, "waits")), "that it goes is written with what its copy says"


async def seen_changes(stage: Stage, name: str) -> list[Json]:
    """The different statuses that its copy has had."""
    found: list[Json] = []
    for worker in stage.workers:
        for _, job in stage.history.jobs(worker):
            if job["metadata"]["name"] == name and job.get("status") and (not found or job["status"] != found[-1]):
                found.append(job["status"])
    return found
