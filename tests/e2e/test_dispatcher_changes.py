"""What a Job's user sees when rules, credentials or other clusters change around a Job."""

from typing import Any

import pytest

from multimirror.api import (
    ATTEMPT_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    HOLD_ANNOTATION,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    QUEUE_LABEL,
)
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES
from tests.e2e.dispatching import Stage, a_job, cluster_of, condition, running

Json = dict[str, Any]


async def test_a_strict_queue_lets_nobody_pass_who_came_later(stage: Stage) -> None:
    def large(job: Json) -> None:
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}

    def small(job: Json) -> None:
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}

    await stage.set_queue(quota={"resources": {"cpu": "3"}}, queueingStrategy="StrictFIFO")
    async with stage.dispatcher():
        await stage.submit("first", change=small, never_finish="true")
        await stage.until(running, "first")
        await stage.submit("large", change=large)
        await stage.event("Waiting", "left of its quota", "large")
        await stage.submit("small", change=small)
        await stage.event("Waiting", "strictly first in, first out", "small")
        await stage.set_queue(queueingStrategy="BestEffortFIFO")
        await stage.done("small")


async def test_a_weighted_queue_gives_the_heavier_worker_more(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Weighted")
    await stage.set_worker(second, weight=3)
    async with stage.dispatcher():
        for number in range(4):
            await stage.submit(f"job-{number}", never_finish="true")
        chosen = [cluster_of(await stage.until(running, f"job-{number}")) for number in range(4)]
        assert (chosen.count(first), chosen.count(second)) == (1, 3)


async def test_new_credentials_for_a_worker_are_followed_and_its_jobs_go_on(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        worker = cluster_of(await stage.until(running))
        assert worker is not None
        await stage.renew(worker)
        await stage.finish()
        job = await stage.done()
        assert (cluster_of(job), job["metadata"]["annotations"][ATTEMPT_ANNOTATION]) == (worker, "1")


async def test_a_job_suspended_by_its_user_stays_so_when_the_controller_starts_again(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"suspend": True}})
        await stage.until(lambda j: condition(j, "Suspended") and not j["status"].get("active"))
    async with stage.dispatcher() as dispatcher:
        await dispatcher.idle()
        job = await stage.job()
        assert job["spec"]["suspend"] is True
        _, copy = await stage.copy()
        assert copy["spec"]["suspend"] is True
        await stage.patch("job", {"spec": {"suspend": False}})
        await stage.until(running)


@pytest.mark.real_server
async def test_what_changes_while_no_controller_runs_reaches_the_copy_afterwards(stage: Stage) -> None:
    async with stage.dispatcher():
        await stage.submit(change=lambda j: j["spec"].update(completions=9), never_finish="true")
        await stage.until(running)
    await stage.patch("job", {"spec": {"parallelism": 2}})
    async with stage.dispatcher():
        await stage.until(lambda j: j["status"].get("active") == 2)


async def test_a_job_may_take_the_queue_of_its_namespace(stage: Stage) -> None:
    labels = {DEFAULT_QUEUE_LABEL: stage.queue}
    await stage.management.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": labels}})
    async with stage.dispatcher():
        await stage.submit(change=lambda j: j["metadata"]["labels"].pop(QUEUE_LABEL))
        assert condition(await stage.done(), "Complete")


async def test_the_copy_of_another_management_cluster_is_left_alone(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_queue(placement="Ordered")
    theirs = a_job("job", queue="unused", never_finish="true")
    theirs["spec"] |= {"suspend": False}
    del theirs["spec"]["managedBy"]
    theirs["metadata"]["labels"] = {ORIGIN_LABEL: "somewhere-else", ORIGIN_UID_LABEL: "nobody-here-knows"}
    made = await stage.workers[first].create(JOBS, theirs, stage.namespace)
    async with stage.dispatcher() as dispatcher:
        await stage.submit()
        assert cluster_of(await stage.done()) == second
        await dispatcher.idle()
        still = await stage.workers[first].get(JOBS, "job", stage.namespace)
        assert still["metadata"]["uid"] == made["metadata"]["uid"]
        assert still["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_held_job_says_so_and_runs_once_its_user_resumes_it(stage: Stage) -> None:
    """As admission leaves a Job that its user creates suspended."""

    def held(job: Json) -> None:
        job["metadata"]["annotations"] = {HOLD_ANNOTATION: "true"}

    async with stage.dispatcher():
        await stage.submit(change=held)
        await stage.submit("other")
        await stage.event("Held", "set spec.suspend to false")
        await stage.done("other")
        assert cluster_of(await stage.job()) is None
        await stage.patch("job", {"spec": {"suspend": False}})
        job = await stage.done()
        assert HOLD_ANNOTATION not in job["metadata"]["annotations"], "another attempt would not be held"


async def test_a_waiting_job_can_be_held_back_and_let_go_by_its_annotation(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 0})
    async with stage.dispatcher() as dispatcher:
        await stage.submit()
        await stage.event("Waiting")
        await stage.patch("job", {"metadata": {"annotations": {HOLD_ANNOTATION: "true"}}})
        await stage.event("Held")
        await stage.set_queue(quota=None)
        await stage.submit("other")
        await stage.done("other")
        assert cluster_of(await stage.job()) is None
        told = dispatcher.explained(f"{stage.namespace}/job")
        assert told is not None
        assert told["state"] == "Held"
        await stage.patch("job", {"metadata": {"annotations": {HOLD_ANNOTATION: None}}})
        await stage.done()


async def test_a_job_of_ours_without_any_queue_says_so_and_runs_once_it_names_one(stage: Stage) -> None:
    async with stage.dispatcher() as dispatcher:
        await stage.submit(change=lambda job: job["metadata"].pop("labels"))
        await stage.event("Waiting", "names no queue")
        await dispatcher.idle()
        told = dispatcher.explained(f"{stage.namespace}/job")
        assert told is not None
        assert (told["state"], told["reason"]) == ("Waiting", "QueueMissing")
        await stage.patch("job", {"metadata": {"labels": {QUEUE_LABEL: stage.queue}}})
        await stage.done()


async def test_a_worker_that_is_no_longer_cordoned_takes_the_jobs_that_wait(stage: Stage) -> None:
    first, second = stage.workers
    await stage.set_worker(first, cordoned=True)
    await stage.set_worker(second, cordoned=True)
    async with stage.dispatcher():
        await stage.submit()
        await stage.event("Waiting", "cordoned")
        await stage.set_worker(second, cordoned=False)
        assert cluster_of(await stage.done()) == second


async def test_a_restarted_dispatcher_does_not_repeat_why_jobs_wait(stage: Stage) -> None:
    await stage.set_queue(quota={"jobs": 1})
    async with stage.dispatcher():
        await stage.submit("first", never_finish="true")
        await stage.until(running, "first")
        await stage.submit("second")
        told = await stage.event("Waiting", "as many as its quota allows", "second")
    async with stage.dispatcher():
        await stage.submit("third")
        await stage.event("Waiting", "as many as its quota allows", "third")  # decided in the same pass as the second
        about = "reason=Waiting,involvedObject.name=second"
        events = (await stage.management.list(EVENTS, stage.namespace, field_selector=about)).items
        assert [(event["metadata"]["name"], event["count"]) for event in events] == [(told["metadata"]["name"], 1)]
        for worker in stage.workers:
            await stage.set_worker(worker, cordoned=True)
        await stage.set_queue(quota=None)
        await stage.event("Waiting", "no worker cluster can take it now", "second")


def asking(cpu: str) -> Any:
    def change(job: Json) -> None:
        job["spec"] |= {"parallelism": 1, "completions": 9}
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}

    return change


async def test_a_template_that_is_changed_while_its_job_is_suspended_is_counted_anew(stage: Stage) -> None:
    await stage.set_queue(quota={"resources": {"cpu": "4"}})
    async with stage.dispatcher():
        await stage.submit(change=asking("3900m"), never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"suspend": True}})
        job = await stage.until(lambda j: condition(j, "Suspended") and not j["status"].get("active"))
        container = job["spec"]["template"]["spec"]["containers"][0] | {"resources": {"requests": {"cpu": "1m"}}}
        await stage.patch("job", {"spec": {"template": {"spec": {"containers": [container]}}}})
        await stage.submit("other", change=asking("3900m"))
        await stage.event("Waiting", "0.1 cpu left of its quota", "other")
        await stage.patch("job", {"spec": {"suspend": False}})
        await stage.event("TemplateChanged", "counted anew")
        job = await stage.until(lambda j: running(j) and j["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "2")
        _, copy = await stage.copy()
        assert copy["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1m"}
        await stage.until(lambda j: cluster_of(j) is not None, "other")


async def test_a_job_that_grows_has_what_its_queue_has_room_for(stage: Stage) -> None:
    await stage.set_queue(quota={"resources": {"cpu": "2"}})
    async with stage.dispatcher():
        await stage.submit(change=asking("1"), never_finish="true")
        await stage.until(running)
        await stage.patch("job", {"spec": {"parallelism": 5}})
        await stage.event("Waiting", "more than the whole quota")
        await stage.patch("job", {"spec": {"parallelism": 2}})
        await stage.until(lambda j: j["status"].get("active") == 2)
        await stage.patch("job", {"spec": {"parallelism": 1}})
        await stage.submit("other", change=asking("1"))
        await stage.until(lambda j: cluster_of(j) is not None, "other")
