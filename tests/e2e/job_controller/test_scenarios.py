"""The life of Jobs of every sort, through the API, with simulated nodes."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from clusters.background import BackgroundFleet
from multimirror.batch import Json
from multimirror.kube import Resource
from multimirror.kube.resources import CONFIG_MAPS, EVENTS, JOBS, NAMESPACES, PODS
from tests.e2e.job_controller.world import FINALIZER, INDEX, World

SUCCESS = [("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")]
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
FOREVER = {"never-finish": "true"}


def failed(reason: str) -> list[tuple[str, str, str]]:
    return [("FailureTarget", "True", reason), ("Failed", "True", reason)]


def index_of(pod: Json) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


async def test_a_single_pod_runs_to_completion(world: World) -> None:
    async with world.controller():
        await world.create()
        status = await world.finished()
        events = await world.events(wanted="Completed")
    assert world.conditions() == SUCCESS
    assert (status["succeeded"], status["ready"], status["terminating"]) == (1, 0, 0)
    assert status["uncountedTerminatedPods"] == {}
    assert status["completionTime"] >= status["startTime"]
    name = world.pods()[0]["metadata"]["name"]
    assert sorted(events) == [
        ("Normal", "Completed", "Job completed"),
        ("Normal", "SuccessfulCreate", f"Created pod: {name}"),
    ]


async def test_the_interim_condition_is_seen_before_the_terminal_one(world: World) -> None:
    async with world.controller():
        await world.create()
        await world.finished()
    seen = [[c["type"] for c in job["status"].get("conditions") or ()] for job in world.history]
    assert ["SuccessCriteriaMet"] in seen
    assert seen[-1] == ["SuccessCriteriaMet", "Complete"]


async def test_completions_are_reached_a_few_at_a_time(world: World) -> None:
    async with world.controller():
        await world.create(completions=7, parallelism=3, node={"duration": "50ms"})
        status = await world.finished()
    assert status["succeeded"] == 7
    assert max(job["status"].get("active") or 0 for job in world.history) <= 3
    assert len(world.pods()) == 7


async def test_a_work_queue_ends_with_its_last_pod(world: World) -> None:
    async with world.controller():
        await world.create(parallelism=3, node={"duration": "100ms"})
        status = await world.finished()
    assert status["succeeded"] == 3
    assert world.conditions() == SUCCESS


async def test_an_indexed_job_runs_every_index_once(world: World) -> None:
    async with world.controller():
        await world.create(completions=6, parallelism=3, completionMode="Indexed")
        status = await world.finished()
    assert (status["completedIndexes"], status["succeeded"]) == ("0-5", 6)
    pods = sorted(world.pods(), key=index_of)
    assert [index_of(pod) for pod in pods] == [0, 1, 2, 3, 4, 5]
    assert [pod["metadata"]["labels"][INDEX] for pod in pods] == ["0", "1", "2", "3", "4", "5"]
    assert [pod["spec"]["hostname"] for pod in pods] == [f"j-{n}" for n in range(6)]
    assert all(pod["metadata"]["name"].startswith(f"j-{index_of(pod)}-") for pod in pods)
    assert pods[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


async def test_failed_pods_are_replaced_until_it_works(world: World) -> None:
    async with world.controller():
        await world.create(backoffLimit=4, node={"fail-first": "2"})
        status = await world.finished()
    assert (status["succeeded"], status["failed"]) == (1, 2)


async def test_too_many_failures_fail_the_job(world: World) -> None:
    async with world.controller():
        await world.create(backoffLimit=1, node={"exit-code": "1"})
        status = await world.finished()
        events = await world.events(wanted="BackoffLimitExceeded")
    assert world.conditions() == failed("BackoffLimitExceeded")
    assert status["failed"] == 2
    assert "completionTime" not in status
    assert ("Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit") in events


async def test_a_failing_job_takes_its_running_pods_along(world: World) -> None:
    async with world.controller():
        await world.create(
            completions=2,
            parallelism=2,
            backoffLimit=0,
            completionMode="Indexed",
            node={"never-finish": "true", "ignore-sigterm": "500ms"},
        )
        await world.running(2)
        await world.set_phase(world.pods()[0], "Failed")
        status = await world.finished()
        events = await world.events(wanted="SuccessfulDelete")
    assert status["failed"] == 2
    assert world.conditions() == failed("BackoffLimitExceeded")
    waiting = [job["status"] for job in world.history if job["status"].get("terminating")]
    assert waiting, "the Job must not be Failed while a pod terminates"
    assert all(c["type"] != "Failed" for status in waiting for c in status["conditions"])
    assert sum(event[1] == "SuccessfulDelete" for event in events) == 1


async def test_the_wait_between_failures_grows(world: World) -> None:
    async with world.controller(pod_backoff_base=1.0):
        await world.create(backoffLimit=2, node={"exit-code": "1"})
        await world.finished()
    tries = sorted((created(pod), ended(pod)) for pod in world.pods())
    # API times have whole seconds on both sides: a wait counted from an end that was cut off ends in a later second.
    waits = [later[0] - earlier[1] for earlier, later in pairwise(tries)]
    assert len(waits) == 2
    assert waits[0] >= timedelta(seconds=1)
    assert waits[1] >= timedelta(seconds=2)


def created(pod: Json) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def ended(pod: Json) -> datetime:
    return datetime.fromisoformat(pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])


async def test_restarts_of_containers_count(world: World) -> None:
    async with world.controller():
        await world.create(backoffLimit=1, pod={"restartPolicy": "OnFailure"}, node={"exit-code": "1"})
        await world.finished()
    assert world.conditions() == failed("BackoffLimitExceeded")
    assert len(world.pods()) <= 1


async def test_the_deadline_ends_a_job(world: World) -> None:
    async with world.controller():
        await world.create(activeDeadlineSeconds=1, node=FOREVER)
        status = await world.finished()
    assert world.conditions() == failed("DeadlineExceeded")
    assert (status["failed"], status.get("active", 0)) == (1, 0)


async def test_a_deadline_that_is_set_later_holds(world: World) -> None:
    async with world.controller():
        await world.create(node=FOREVER)
        await world.running(1)
        await world.patch("j", {"spec": {"activeDeadlineSeconds": 1}})
        await world.finished()
    assert world.conditions() == failed("DeadlineExceeded")


async def test_suspending_and_resuming(world: World) -> None:
    async with world.controller():
        await world.create(completions=2, parallelism=2, node=FOREVER)
        await world.running(2)
        before = world.status()["startTime"]
        await world.patch("j", {"spec": {"suspend": True}})
        await world.until(lambda: ("Suspended", "True", "JobSuspended") in world.conditions() and not world.pods())
        await world.until(lambda: world.status()["terminating"] == 0)
        assert "startTime" not in world.status()
        assert world.status().get("failed", 0) == 0
        await world.patch("j", {"spec": {"suspend": False}})
        await world.running(2)
        assert world.conditions() == [("Suspended", "False", "JobResumed")]
        assert world.status()["startTime"] >= before
        reasons = {event[1] for event in await world.events(wanted="Resumed")}
    assert {"Suspended", "Resumed"} <= reasons


async def test_a_job_created_suspended_waits(world: World) -> None:
    async with world.controller():
        await world.create(suspend=True)
        await world.until(lambda: world.conditions() == [("Suspended", "True", "JobSuspended")])
        assert world.pods() == []
        await world.patch("j", {"spec": {"suspend": False}})
        await world.finished()
    assert [c[0] for c in world.conditions()] == ["Suspended", "SuccessCriteriaMet", "Complete"]


async def test_a_suspended_job_without_completions_completes(world: World) -> None:
    async with world.controller():
        await world.create(suspend=True, completions=0)
        await world.finished()
    assert world.conditions() == SUCCESS


async def test_parallelism_follows_the_spec(world: World) -> None:
    async with world.controller():
        await world.create(completions=9, parallelism=2, node=FOREVER)
        await world.running(2)
        await world.patch("j", {"spec": {"parallelism": 5}})
        await world.running(5)
        await world.patch("j", {"spec": {"parallelism": 1}})
        await world.until(lambda: len(world.pods()) == 1 and world.status().get("terminating") == 0)
        await world.running(1)
    assert world.status().get("failed", 0) == 0


async def test_an_elastic_job_is_scaled(world: World) -> None:
    async with world.controller():
        await world.create(completions=4, parallelism=4, completionMode="Indexed", node=FOREVER)
        await world.running(4)
        await world.set_phase(next(pod for pod in world.pods() if index_of(pod) == 3), "Succeeded")
        await world.until(lambda: world.status().get("completedIndexes") == "3")
        await world.patch("j", {"spec": {"completions": 2, "parallelism": 2}})
        await world.until(lambda: world.status().get("completedIndexes") is None)
        await world.running(2)
        await world.patch("j", {"spec": {"completions": 4, "parallelism": 4}})
        await world.running(4)
        assert sorted({index_of(pod) for pod in world.pods() if pod["status"]["phase"] == "Running"}) == [0, 1, 2, 3]
        await world.patch("j", {"spec": {"completions": 0, "parallelism": 0}})
        await world.finished()
    assert world.conditions() == SUCCESS


async def test_each_index_has_its_own_failures(world: World) -> None:
    async with world.controller():
        await world.create(
            completions=3,
            parallelism=3,
            completionMode="Indexed",
            backoffLimitPerIndex=1,
            node={"fail-first": "1"},
        )
        status = await world.finished()
    assert world.conditions() == SUCCESS
    assert (status["failed"], status["succeeded"], status["failedIndexes"]) == (3, 3, "")
    counts = sorted(p["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] for p in world.pods())
    assert counts == ["0", "0", "0", "1", "1", "1"]


async def test_failed_indexes_fail_the_job_at_the_end(world: World) -> None:
    async with world.controller():
        await world.create(completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=0, node=FOREVER)
        await world.running(2)
        for pod in world.pods():
            await world.set_phase(pod, "Failed" if index_of(pod) == 0 else "Succeeded")
        status = await world.finished()
    assert world.conditions() == failed("FailedIndexes")
    assert (status["failedIndexes"], status["completedIndexes"]) == ("0", "1")


async def test_too_many_failed_indexes_fail_the_job_at_once(world: World) -> None:
    async with world.controller():
        await world.create(
            completions=4,
            parallelism=4,
            completionMode="Indexed",
            backoffLimitPerIndex=0,
            maxFailedIndexes=0,
            node=FOREVER,
        )
        await world.running(4)
        await world.set_phase(next(pod for pod in world.pods() if index_of(pod) == 2), "Failed")
        await world.finished()
    assert world.conditions() == failed("MaxFailedIndexesExceeded")


def policy(action: str, **rule: Any) -> Json:
    return {"rules": [{"action": action, **rule}]}


EXIT_7 = {"onExitCodes": {"operator": "In", "values": [7]}}


async def test_a_policy_fails_the_job(world: World) -> None:
    async with world.controller():
        await world.create(podFailurePolicy=policy("FailJob", **EXIT_7), node={"exit-code": "7"})
        status = await world.finished()
    assert world.conditions() == failed("PodFailurePolicy")
    pod = world.pods()[0]["metadata"]["name"]
    assert status["conditions"][1]["message"] == (
        f"Container main for pod {world.namespace}/{pod} failed with exit code 7 matching FailJob rule at index 0"
    )


async def test_an_ignored_failure_is_not_counted(world: World) -> None:
    rule = policy("Ignore", onPodConditions=[{"type": "DisruptionTarget", "status": "True"}])
    async with world.controller():
        await world.create(podFailurePolicy=rule, backoffLimit=0, node=FOREVER)
        await world.running(1)
        first = world.pods()[0]
        await world.set_phase(first, "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}])
        await world.until(lambda: any(pod["status"]["phase"] == "Running" for pod in world.pods() if pod is not first))
        await world.until(lambda: len(world.pods()) == 2 and world.status().get("ready") == 1)
        second = next(pod for pod in world.pods() if pod["metadata"]["uid"] != first["metadata"]["uid"])
        await world.set_phase(second, "Succeeded")
        status = await world.finished()
    assert world.conditions() == SUCCESS
    assert status.get("failed", 0) == 0


async def test_a_policy_fails_the_index(world: World) -> None:
    async with world.controller():
        await world.create(
            completions=2,
            parallelism=2,
            completionMode="Indexed",
            backoffLimitPerIndex=5,
            podFailurePolicy=policy("FailIndex", **EXIT_7),
            node={"exit-code": "7"},
        )
        status = await world.finished()
    assert world.conditions() == failed("FailedIndexes")
    assert (status["failedIndexes"], status["failed"]) == ("0,1", 2)


async def test_a_success_policy_ends_the_job_early(world: World) -> None:
    async with world.controller():
        await world.create(
            completions=3,
            parallelism=3,
            completionMode="Indexed",
            successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
            node=FOREVER,
        )
        await world.running(3)
        await world.set_phase(next(pod for pod in world.pods() if index_of(pod) == 1), "Succeeded")
        status = await world.finished()
    assert world.conditions() == [
        ("SuccessCriteriaMet", "True", "SuccessPolicy"),
        ("Complete", "True", "SuccessPolicy"),
    ]
    assert status["conditions"][0]["message"] == "Matched rules at index 0"
    assert (status["succeeded"], status.get("failed", 0), status["completedIndexes"]) == (1, 0, "1")


@pytest.mark.parametrize(("replacement", "failures"), [("TerminatingOrFailed", 1), ("Failed", 0)])
async def test_when_a_deleted_pod_is_replaced(world: World, replacement: str, failures: int) -> None:
    async with world.controller():
        await world.create(
            podReplacementPolicy=replacement,
            node={"never-finish": "true", "ignore-sigterm": "60s", "sigterm-exit-code": "1"},
            pod={"terminationGracePeriodSeconds": 60},
        )
        await world.running(1)
        await world.client.delete(PODS, world.pods()[0]["metadata"]["name"], world.namespace)
        await world.until(lambda: world.status().get("terminating") == 1)
        if replacement == "TerminatingOrFailed":
            await world.until(lambda: world.status().get("ready") == 1)
            assert len(world.pods()) == 2
        else:
            assert len(world.pods()) == 1
        await world.until(lambda: world.status().get("failed", 0) == failures)


async def test_an_ownerless_pod_is_adopted_and_counted(world: World) -> None:
    async with world.controller():
        job = await world.create(completions=2, parallelism=1, suspend=True)
        labels = job["spec"]["template"]["metadata"]["labels"]
        orphan = {
            "metadata": {"name": "orphan", "namespace": world.namespace, "labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        }
        await world.client.create(PODS, orphan)
        await world.until(
            lambda: bool(world.pods()) is False or bool(world.pods()[0]["metadata"].get("ownerReferences"))
        )
        await world.patch("j", {"spec": {"suspend": False}})
        await world.finished()
    assert world.conditions()[-1][0] == "Complete"


async def test_a_pod_whose_labels_change_is_let_go(world: World) -> None:
    async with world.controller():
        await world.create(node=FOREVER)
        await world.running(1)
        pod = world.pods()[0]
        labels = dict.fromkeys(pod["metadata"]["labels"], "other") | {"kept": "yes"}
        await world.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": labels}}, world.namespace)

        def released() -> bool:
            now = next(p for p in world.pods() if p["metadata"]["uid"] == pod["metadata"]["uid"])
            return not now["metadata"].get("ownerReferences") and not now["metadata"].get("finalizers")

        await world.until(released)
        await world.until(lambda: len(world.pods()) == 2)
        await world.running(1)


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_the_pods_of_a_deleted_job_lose_their_finalizer(world: World, propagation: Any) -> None:
    async with world.controller():
        await world.create(completions=3, parallelism=3, node=FOREVER)
        await world.running(3)
        await world.client.delete(JOBS, "j", world.namespace, propagation=propagation)
        await world.until(lambda: not world.job() and not world.tracked())
        if propagation != "Orphan":
            await world.until(lambda: not world.pods())


async def test_a_finished_job_leaves_no_finalizer_behind(world: World) -> None:
    """A pod that gets the finalizer when its Job is finished already is freed when it is deleted."""
    async with world.controller():
        await world.create(node={"duration": "0"})
        await world.finished()
        name = world.pods()[0]["metadata"]["name"]
        await world.client.patch(PODS, name, {"metadata": {"finalizers": [FINALIZER]}}, world.namespace)
        await world.client.delete(PODS, name, world.namespace)
        await world.until(lambda: not world.pods())


@pytest.mark.parametrize("name", ["example.com/other", "kubernetes.io/job-controller"])
async def test_managed_by(world: World, name: str) -> None:
    async with world.controller():
        await world.create("theirs", managedBy=name)
        await world.create("mine")
        await world.finished("mine")
        if name == "kubernetes.io/job-controller":
            await world.finished("theirs")
        else:
            assert world.status("theirs") == {}
            assert world.pods("theirs") == []


async def test_another_name_can_be_served(world: World) -> None:
    async with world.controller(controller_name="example.com/ours"):
        await world.create("plain")
        await world.create("ours", managedBy="example.com/ours")
        await world.finished("ours")
    assert world.status("plain") == {}


async def test_a_job_that_is_made_anew_for_another_controller_is_left_alone(world: World) -> None:
    async with world.controller(sync_batch_period=0.3):
        await world.create(node=FOREVER)
        await world.running(1)
        await world.client.delete(JOBS, "j", world.namespace, propagation="Background")
        await world.until(lambda: not world.job())
        await world.create(managedBy="example.com/other")
        await world.create("marker")
        await world.finished("marker")
        await world.until(lambda: not world.pods("j"))
    assert world.status() == {}


async def test_a_refused_creation_is_told_and_tried_again(world: World, cluster: BackgroundFleet) -> None:
    if cluster.kind == "embedded":
        pytest.skip("the embedded API server does not enforce quotas")
    quota = {"metadata": {"name": "none", "namespace": world.namespace}, "spec": {"hard": {"pods": "0"}}}
    await world.client.create(QUOTAS, quota)
    async with world.controller():
        await world.create()
        events = await world.events(wanted="FailedCreate")
        assert events[0][2].startswith("Error creating: pods ")
        assert world.pods() == []
        await world.client.delete(QUOTAS, "none", world.namespace)
        await world.finished()


async def test_a_terminating_namespace_is_left_in_peace(world: World) -> None:
    async with world.controller():
        await world.create("before", suspend=True)
        await world.until(lambda: bool(world.conditions("before")))
        held = {"metadata": {"name": "held", "namespace": world.namespace, "finalizers": ["example.com/hold"]}}
        await world.client.create(CONFIG_MAPS, held)
        await world.client.delete(NAMESPACES, world.namespace)
        await world.until(
            lambda: not world.job("before") or bool(world.job("before")["metadata"].get("deletionTimestamp"))
        )
        events = (await world.client.list(EVENTS, world.namespace)).items
        await world.client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, world.namespace)
    assert not [event for event in events if event["reason"] == "FailedCreate"]


async def test_one_broken_job_does_not_stop_the_others(world: World) -> None:
    async with world.controller():
        await world.create("broken", pod={"containers": [{"name": "main", "image": "b", "imagePullPolicy": "Never"}]})
        await world.patch(
            "broken", {"status": {"uncountedTerminatedPods": {"succeeded": ["no-such-pod"]}}}, subresource="status"
        )
        for number in range(5):
            await world.create(f"good-{number}")
        for number in range(5):
            await world.finished(f"good-{number}")
